"""FedAU: the mixture by its formula, the module's training, the rest unchanged."""

from collections.abc import Callable
from dataclasses import replace
from math import nan

import numpy as np
import pytest
import torch

from tests.workers.methods.network.baselines.federated_case import (
    CNN,
    CNN_CLIENTS,
    CNN_CONFIG,
    cnn_case,
)
from tests.workers.methods.network.small import SOME_ROWS, Silent, case
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK
from workers.errors import RefusedError
from workers.methods.network.base import Side
from workers.methods.network.baselines.fed_au import (
    FedAU,
    classifier_flops,
    mix,
    train_classifier,
)
from workers.methods.network.baselines.random_label import other_labels
from workers.methods.network.recovery import Recovery
from workers.training.fedavg.client.flops import forward_flops, training_flops
from workers.training.fedavg.client.local import batches
from workers.training.fedavg.rounds import make_tasks
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import initial_weights

NONE = Recovery(rounds=0)
NAMES = ("head.bias", "head.weight")


@pytest.mark.parametrize("alpha", [0.0, 0.04, 0.5, 1.0])
def test_it_is_the_mixture_of_the_formula(alpha: float) -> None:
    given = cnn_case()
    found = FedAU(alpha, epochs=2, recovery=NONE).run(given)
    whole = FedAU(1.0, epochs=2, recovery=NONE).run(given)  # α = 1 is the module itself
    for name, part in given.weights.items():
        if name not in NAMES:
            assert torch.equal(found.weights[name], part), name
            continue
        old, module = part.double().numpy(), whole.weights[name].double().numpy()
        wanted = (1 - alpha) * old + alpha * module
        np.testing.assert_allclose(found.weights[name].numpy(), wanted, atol=1e-7)
    assert found.claim == "empirical-approximate"
    assert found.notes["fed-au.module-bytes"] == str(4 * (512 * 3 + 3))


def test_mixing_is_rounded_once() -> None:
    one, other = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 0.5])
    assert mix(one, other, 0.25).tolist() == [1.5, -1.375]


def test_the_module_learns_the_wrong_labels_by_plain_sgd() -> None:
    """The whole logistic network is its own classifier: NumPy repeats every step."""
    config = replace(CONFIG.local, epochs=3)
    (task,) = make_tasks(
        NETWORK, initial_weights(NETWORK, 4), ["bert"], config, round=1, seed=9
    )
    found = train_classifier(task, CLIENTS["bert"], NAMES)
    labels = other_labels(CLIENTS["bert"].targets, 3, derive(task.seed, "labels"))
    assert not bool((labels == CLIENTS["bert"].targets).any())
    x, wanted = CLIENTS["bert"].inputs.double().numpy(), np.eye(3)[labels.numpy()]
    w, b = (task.weights[name].double().numpy().copy() for name in ("head.weight", "head.bias"))
    for rows in batches(12, config, task.seed):
        at = rows.numpy()
        p = np.exp(x[at] @ w.T + b)
        p /= p.sum(1, keepdims=True)
        w -= 0.2 * (p - wanted[at]).T @ x[at] / len(at)
        b -= 0.2 * (p - wanted[at]).mean(0)
    np.testing.assert_allclose(
        task.weights["head.weight"] + found.delta["head.weight"], w, atol=1e-5
    )
    np.testing.assert_allclose(
        task.weights["head.bias"] + found.delta["head.bias"], b, atol=1e-5
    )


def test_features_do_not_move_and_their_gradients_are_not_paid_for() -> None:
    (task,) = make_tasks(
        CNN, initial_weights(CNN, 2), ["anna"], CNN_CONFIG.local, round=1, seed=1
    )
    found = train_classifier(task, CNN_CLIENTS["anna"], NAMES)
    moved = {name for name, part in found.delta.items() if bool(part.any())}
    assert moved == set(NAMES)
    each = classifier_flops(CNN, "cross-entropy", NAMES)
    assert found.flops == 7 * each
    # Forward through all, then one product for the gradient of the head's 512 x 3 weights.
    assert each == forward_flops(CNN) + 2 * 512 * 3
    assert each < training_flops(CNN) / 2


def test_only_the_targets_train_and_rows_of_one_can_be_named() -> None:
    given = case(SOME_ROWS)
    alone = replace(given, retained=Side(Silent(), given.retained.rows))
    found = FedAU(recovery=NONE).run(alone)
    assert found.work.steps == 10  # 10 epochs of 4 rows in one batch
    assert found.work.rounds == 1


BAD: dict[str, Callable[[], object]] = {
    "alpha above 1": lambda: FedAU(alpha=1.1),
    "alpha NaN": lambda: FedAU(alpha=nan),
    "no epoch": lambda: FedAU(epochs=0),
    "rate": lambda: FedAU(learning_rate=-1.0),
    "no target": lambda: FedAU().run(replace(case(), targets=None)),
}


@pytest.mark.parametrize("name", BAD)
def test_it_refuses(name: str) -> None:
    with pytest.raises(RefusedError):
        BAD[name]()
