"""MoDe: the degradation by its recurrence, the participants, the labels learned."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.workers.methods.network.small import (
    SEVERAL,
    SOME_ROWS,
    TRAINED,
    WHOLE,
    Silent,
    case,
    equal,
)
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Side, Tick, UnlearningRequest
from workers.methods.network.baselines.mode import MoDe, degrade, pseudo
from workers.methods.network.local_case import divide
from workers.training.fedavg.client.local import train_locally
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.evaluate import logits_of
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import make_tasks, train
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import Weights

STAY = {name: CLIENTS[name] for name in ("anna", "cleo")}
YOUNG_SEED = derive(CONFIG.seed, "mode", "degradation")


def young(rounds: int) -> Weights:
    """The degradation model: an ordinary training of the retained clients with its own seed."""
    config: TrainingConfig = replace(CONFIG, seed=YOUNG_SEED, rounds=rounds)
    return train(NETWORK, {"anna": 7, "cleo": 5}, config, InProcess(STAY)).weights


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
def test_degradation_is_a_moving_mean_towards_the_young_model(momentum: float) -> None:
    given = case()
    alone = replace(given, targets=Side(Silent(), given.targets.rows))  # type: ignore[union-attr]
    found = MoDe(degradation_rounds=3, guidance_rounds=0, momentum=momentum).run(alone)
    for name, part in TRAINED.items():
        model = part.double().numpy()
        for number in (1, 2, 3):
            model = momentum * model + (1 - momentum) * young(number)[name].double().numpy()
        np.testing.assert_allclose(found.weights[name].numpy(), model, atol=1e-6)
    assert found.work.rounds == 3
    assert found.claim == "empirical-approximate"


def test_one_step_of_it() -> None:
    one, other = {"w": torch.tensor([2.0])}, {"w": torch.tensor([-2.0])}
    assert degrade(one, other, 0.75)["w"].tolist() == [1.0]


@pytest.mark.parametrize(
    "request_", [WHOLE, SOME_ROWS, SEVERAL], ids=["client", "rows", "both"]
)
def test_one_round_of_guidance(request_: UnlearningRequest) -> None:
    """All updates written out: own labels for retained clients, M_d's for the targets."""
    method = MoDe(degradation_rounds=2, guidance_rounds=1, guidance_rate=0.05)
    found = method.run(case(request_))
    stays, goes = divide(CLIENTS, request_)
    rows = {name: len(data) for name, data in stays.items()}
    config = replace(CONFIG, seed=YOUNG_SEED, rounds=2)
    guide = train(NETWORK, rows, config, InProcess(stays)).weights
    start = replace(method, guidance_rounds=0).run(case(request_)).weights
    local = replace(CONFIG.local, learning_rate=0.05)
    seed = derive(CONFIG.seed, "mode", "guidance")
    updates = []
    for data, labels in ((stays, False), (goes, True)):
        for task in make_tasks(NETWORK, start, data, local, round=1, seed=seed):
            held = data[task.client]
            if labels:
                predicted = logits_of(NETWORK, guide, held.inputs).argmax(1)
                held = replace(held, targets=predicted)
            updates.append(train_locally(task, held))
    total = sum(update.samples for update in updates)
    assert total == sum(ROWS.values())
    for name, part in start.items():
        mean = sum(update.samples / total * update.delta[name].double() for update in updates)
        torch.testing.assert_close(
            found.weights[name].double(), part.double() + mean, atol=1e-6, rtol=0
        )
    assert found.work.rounds == 3


def test_the_targets_own_labels_are_never_learned() -> None:
    """Two targets with other labels and the same inputs lead to the same model."""
    other = replace(CLIENTS["bert"], targets=(CLIENTS["bert"].targets + 1) % 3)
    one = case()
    assert one.targets is not None
    two = replace(one, targets=Side(InProcess({"bert": other}), one.targets.rows))
    method = MoDe(degradation_rounds=1, guidance_rounds=2)
    assert equal(method.run(one).weights, method.run(two).weights)
    guided = pseudo(NETWORK, young(1), CLIENTS["bert"])
    assert equal({"": guided.targets}, {"": pseudo(NETWORK, young(1), other).targets})
    assert guided.inputs is CLIENTS["bert"].inputs


def test_it_tells_of_all_its_rounds_and_counts_the_young_model_sent() -> None:
    ticks: list[Tick] = []
    method = MoDe(degradation_rounds=2, guidance_rounds=3)
    found = method.run(case(), Hooks(tell=ticks.append))
    assert [tick.done for tick in ticks if tick.total == 5] == [1, 2, 3, 4, 5]
    none = replace(method, guidance_rounds=0).run(case())
    assert found.work.bytes_down > none.work.bytes_down
    assert found.notes["state.bytes"] == str(2 * 15 * 4)


BAD: dict[str, Callable[[], object]] = {
    "rounds": lambda: MoDe(degradation_rounds=-1),
    "half a round": lambda: MoDe(guidance_rounds=1.5),  # type: ignore[arg-type]
    "momentum": lambda: MoDe(momentum=1.5),
    "rate": lambda: MoDe(guidance_rate=-1.0),
    "no target": lambda: MoDe().run(replace(case(), targets=None)),
}


@pytest.mark.parametrize("name", BAD)
def test_it_refuses(name: str) -> None:
    with pytest.raises(RefusedError):
        BAD[name]()
