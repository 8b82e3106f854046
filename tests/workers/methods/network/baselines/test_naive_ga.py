"""NaiveGA escalations, averages by rows, and says so when it has blown up."""

from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest
import torch

from tests.workers.methods.network.baselines.federated_case import cnn_case
from tests.workers.methods.network.small import SEVERAL, SOME_ROWS, TRAINED, Silent, case, equal
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK
from workers.errors import RefusedError
from workers.methods.network.base import Side
from workers.methods.network.baselines.ascent import ascend
from workers.methods.network.baselines.naive_ga import NaiveGA
from workers.methods.network.local_case import divide
from workers.training.fedavg.client.local import train_locally
from workers.training.fedavg.errors import DivergedError
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.rounds import make_tasks
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import difference, norm


def test_it_ascends_the_loss_of_the_rows_to_forget_alone() -> None:
    for request in (SOME_ROWS, SEVERAL):
        given = case(request)
        alone = replace(given, retained=Side(Silent(), given.retained.rows))
        found = NaiveGA(epochs=3).run(alone)
        goes = divide(CLIENTS, request)[1]
        for data in goes.values():
            before = evaluate(NETWORK, TRAINED, data).loss
            assert evaluate(NETWORK, found.weights, data).loss > before
        assert found.work.rounds == 1
        assert found.work.bytes_up > 0
        assert found.claim == "empirical-approximate"


def test_one_step_up_is_one_step_down_turned_around() -> None:
    config = replace(CONFIG.local, epochs=1, batch_size=99)
    (task,) = make_tasks(NETWORK, TRAINED, ["anna"], config, round=1, seed=2)
    up, down = ascend(task, CLIENTS["anna"]), train_locally(task, CLIENTS["anna"])
    for name in TRAINED:
        torch.testing.assert_close(up.delta[name], -down.delta[name], atol=1e-6, rtol=0)
    assert (up.steps, up.flops, up.loss) == (down.steps, down.flops, down.loss)


def test_targets_are_averaged_by_their_rows() -> None:
    found = NaiveGA(epochs=2).run(case(SEVERAL))
    goes = divide(CLIENTS, SEVERAL)[1]
    local = replace(
        CONFIG.local,
        optimizer="sgd",
        epochs=2,
        learning_rate=CONFIG.local.rate(CONFIG.rounds + 1),
        decay=1.0,
        momentum=0.0,
        clip_norm=5.0,
        weight_decay=0.0,
        augment="none",
    )
    tasks = make_tasks(
        NETWORK, TRAINED, goes, local, round=7, seed=derive(CONFIG.seed, "naive-ga", 6)
    )
    updates = {task.client: ascend(task, goes[task.client]) for task in tasks}
    assert len(goes["anna"]) == 7
    assert len(goes["bert"]) == 2
    for name, part in TRAINED.items():
        mean = 7 / 9 * updates["anna"].delta[name] + 2 / 9 * updates["bert"].delta[name]
        torch.testing.assert_close(found.weights[name], part + mean, atol=1e-6, rtol=0)


def test_an_ascent_without_end_is_named_and_the_model_left_alone() -> None:
    given = cnn_case()
    before = {name: part.clone() for name, part in given.weights.items()}
    with pytest.raises(DivergedError, match="puf-special or retrain"):
        NaiveGA(epochs=20, learning_rate=1e6, clip_norm=0.0).run(given)
    assert equal(given.weights, before)


def test_clipping_leaves_a_model_where_the_plain_ascent_has_none() -> None:
    given = cnn_case()
    with pytest.raises(DivergedError):
        NaiveGA(epochs=20, learning_rate=50.0, clip_norm=0.0).run(given)
    found = NaiveGA(epochs=20, learning_rate=50.0).run(given)
    # 20 epochs of 2 batches, each step of length 50 x 5 at most.
    assert norm(difference(found.weights, given.weights)) <= 40 * 250 * (1 + 1e-5)


BAD: dict[str, Callable[[], object]] = {
    "no epoch": lambda: NaiveGA(epochs=0),
    "rate below 0": lambda: NaiveGA(learning_rate=-0.1),
    "rate without end": lambda: NaiveGA(learning_rate=inf),
    "momentum": lambda: NaiveGA(momentum=1.0),
    "no target": lambda: NaiveGA().run(replace(case(), targets=None)),
}


@pytest.mark.parametrize("name", BAD)
def test_it_refuses(name: str) -> None:
    with pytest.raises(RefusedError):
        BAD[name]()
