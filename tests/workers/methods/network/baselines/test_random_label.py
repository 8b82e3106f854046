import numpy as np
import pytest
import torch

from tests.workers.methods.network.baselines.central_case import (
    CLASSES,
    Head,
    close,
    make_case,
    one_batch,
    pooled,
)
from workers.errors import RefusedError
from workers.methods.network.baselines.random_label import RandomLabel, other_labels
from workers.training.fedavg.seeds import derive


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_true_class_is_never_drawn_and_the_others_equally(classes: int) -> None:
    targets = torch.arange(classes).repeat(6000)
    drawn = other_labels(targets, classes, seed=5)
    assert drawn.dtype == torch.int64
    table = np.zeros((classes, classes))
    np.add.at(table, (targets.numpy(), drawn.numpy()), 1)
    assert (np.diag(table) == 0).all()
    expected = 6000 / (classes - 1)
    others = table[~np.eye(classes, dtype=bool)]
    # χ² with c(c - 2) degrees of freedom; five deviations above its mean.
    freedom = classes * (classes - 2)
    chi = ((others - expected) ** 2 / expected).sum()
    assert chi <= freedom + 5 * np.sqrt(2 * freedom)


def test_labels_are_a_function_of_the_seed_and_pixels_get_their_own() -> None:
    targets = torch.zeros((2, 8, 8), dtype=torch.int64)
    first, again, other = (other_labels(targets, 4, seed) for seed in (1, 1, 2))
    assert first.shape == targets.shape
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert set(first.flatten().tolist()) == {1, 2, 3}


def test_a_single_class_has_no_other() -> None:
    with pytest.raises(RefusedError, match="use retrain"):
        other_labels(torch.zeros(3, dtype=torch.int64), 1, 0)


def test_one_step_learns_true_labels_that_stay_and_wrong_ones_that_leave() -> None:
    config = one_batch()
    found = RandomLabel(epochs=1).run(make_case(config=config))
    (stay, right), (leave, true) = pooled("retained"), pooled("forget")
    seed = derive(config.seed, "central", "random-label", config.rounds)
    wrong = other_labels(torch.from_numpy(true), CLASSES, seed).numpy()
    start = Head.of()
    x = np.concatenate([stay, leave])
    slope = start.gradient(x, np.concatenate([right, wrong]))
    assert close(found.weights, start.plus(slope, -0.1))
    honest = start.gradient(x, np.concatenate([right, true]))
    assert not close(found.weights, start.plus(honest, -0.1), 1e-3)
