"""Losses by hand, accuracy and Dice scores, arrays to tensors."""

from math import log
from typing import Any

import numpy as np
import pytest
import torch

from tests.workers.training.fedavg.small import client_data
from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import image_data, split
from workers.training.fedavg.client.local import train_locally
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.evaluate import dice_loss, evaluate, logits_of, loss_of, row_losses
from workers.training.fedavg.rounds import make_tasks
from workers.training.networks.registry import network
from workers.training.networks.weights import initial_weights, moved


def test_dice_by_hand() -> None:
    # Two pixels of two classes, p = (3/4, 1/4) for both; the first is of class 0.
    logits = torch.tensor([[log(3.0), 0.0]] * 2)
    labels = torch.tensor([0, 1])
    zero = (2 * 0.75 + 1) / (2 * 0.75**2 + 1 + 1)
    one = (2 * 0.25 + 1) / (2 * 0.25**2 + 1 + 1)
    assert float(dice_loss(logits, labels)) == pytest.approx(1 - (zero + one) / 2, rel=1e-6)


def test_dice_is_zero_for_a_perfect_answer_and_an_absent_class_is_no_miss() -> None:
    labels = torch.tensor([0, 0, 1, 0])
    logits = torch.full((4, 3), -50.0)
    logits[torch.arange(4), labels] = 50.0
    assert float(dice_loss(logits, labels)) == pytest.approx(0, abs=1e-6)
    wrong = logits.roll(1, 1)
    assert float(dice_loss(wrong, labels)) > 0.6


def test_losses_of_images_are_means_over_pixels() -> None:
    logits = torch.linspace(-2, 2, 2 * 3 * 4 * 5).view(2, 3, 4, 5)
    targets = torch.arange(40).view(2, 4, 5) % 3
    expected = torch.nn.functional.cross_entropy(logits, targets)
    torch.testing.assert_close(loss_of("cross-entropy", logits, targets), expected)
    flat = logits.permute(0, 2, 3, 1).reshape(-1, 3)
    both = expected + dice_loss(flat, targets.flatten())
    torch.testing.assert_close(loss_of("cross-entropy+dice", logits, targets), both)
    rows = row_losses(logits, targets)
    assert rows.shape == (2,)
    torch.testing.assert_close(rows.mean(), expected)
    torch.testing.assert_close(
        rows[1], torch.nn.functional.cross_entropy(logits[1:], targets[1:])
    )


def test_a_segmentation_network_learns_a_mask() -> None:
    """Bright pixels are the class: forty steps find it, and Dice says so."""
    named = network("res-unet", {"channels": 1, "height": 16, "width": 16, "features": 4})
    images = (torch.sin(torch.arange(8 * 256.0)) > 0.3).float().view(8, 1, 16, 16)
    data = ClientData(images, images[:, 0].long())
    weights = initial_weights(named, 0)
    config = LocalConfig(
        epochs=20, batch_size=4, optimizer="adam", learning_rate=0.01, loss="cross-entropy+dice"
    )
    task = make_tasks(named, weights, ["a"], config, round=1, seed=0)[0]
    after = moved(weights, train_locally(task, data).delta)
    first, last = evaluate(named, weights, data), evaluate(named, after, data)
    assert first.dice is not None
    assert last.dice is not None
    assert last.dice > 0.95 > first.dice
    assert last.accuracy > 0.95
    assert last.loss < first.loss


def test_accuracy_and_loss() -> None:
    named = network("logistic", {"features": 2, "classes": 2})
    weights = {"head.bias": torch.zeros(2), "head.weight": torch.tensor([[1.0, 0], [0, 1.0]])}
    data = ClientData(torch.tensor([[2.0, 0], [0, 2.0], [3.0, 0]]), torch.tensor([0, 1, 1]))
    found = evaluate(named, weights, data)
    assert found.accuracy == pytest.approx(2 / 3)
    small, large = log(1 + np.exp(-2)), log(1 + np.exp(3))
    assert found.loss == pytest.approx((2 * small + large) / 3)
    assert (found.samples, found.dice) == (3, None)


def test_rows_have_the_same_logits_in_any_number() -> None:
    named = network("logistic", {"features": 4, "classes": 3})
    data = client_data(600, 1)
    whole = logits_of(named, initial_weights(named, 1), data.inputs)
    assert whole.shape == (600, 3)
    assert torch.equal(
        whole[:256], logits_of(named, initial_weights(named, 1), data.inputs[:256])
    )


def test_images_become_planes() -> None:
    images = np.arange(2 * 2 * 3 * 3, dtype=np.uint8).reshape(2, 2, 3, 3)
    labels = np.array([1, 0], dtype=np.uint8)
    data = image_data(images, labels, mean=(0.1, 0.2, 0.3), deviation=(0.5,))
    assert data.inputs.shape == (2, 3, 2, 3)
    value = (int(images[1, 0, 2, 1]) / 255 - 0.2) / 0.5
    assert float(data.inputs[1, 1, 0, 2]) == pytest.approx(value, rel=1e-5)
    assert data.targets.tolist() == [1, 0]


def test_rows_are_split_by_owner() -> None:
    data = ClientData(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    parts = split(data, np.array(["b", "a", "b", "a", "c", "b"]))
    assert {name: part.targets.tolist() for name, part in parts.items()} == {
        "a": [1, 3],
        "b": [0, 2, 5],
        "c": [4],
    }
    assert parts["a"].inputs.tolist() == [[2, 3], [6, 7]]
    numbered = split(data, np.array([10, 2, 10, 2, 2, 2]))
    assert list(numbered) == ["10", "2"]
    assert data.only(torch.tensor([True] + [False] * 5)).targets.tolist() == [0]
    with pytest.raises(RefusedError):
        data.only(torch.zeros(6, dtype=torch.bool))
    with pytest.raises(RefusedError, match="owner"):
        split(data, np.zeros(5))


ODD: list[dict[str, Any]] = [
    {"images": np.zeros((2, 4, 4), dtype=np.uint8)},
    {"images": np.zeros((2, 4, 4, 1))},
    {"targets": np.zeros(2)},
    {"targets": np.zeros(3, dtype=np.int64)},
    {"mean": (0.1, 0.2)},
    {"deviation": (0.0,)},
]


@pytest.mark.parametrize("change", ODD)
def test_odd_images_are_refused(change: dict[str, Any]) -> None:
    good = {"images": np.zeros((2, 4, 4, 1), dtype=np.uint8), "targets": np.zeros(2, int)}
    with pytest.raises(RefusedError):
        image_data(**{**good, **change})
