"""Stamping rows with a trigger, in the units in which they were registered."""

from typing import Any

import numpy as np
import pytest
import torch

from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import image_data
from workers.training.replay.canary import read_canary

SHAPE = (1, 2, 3)
DOCUMENT = {"trigger": [[0, 255], [4, 7]], "units": "pixels", "target": "b"}
CLASSES = ["a", "b"]


def test_stamped_rows_are_those_that_a_client_would_have_sent() -> None:
    """The client's pixels are changed by hand, then scaled as the service scales them."""
    pixels = np.random.default_rng(0).integers(256, size=(5, 1, 2, 3), dtype=np.uint8)
    labels = np.array([0, 1, 1, 0, 1])
    by_hand = pixels.copy()
    by_hand[:, 0, 0, 0] = 255
    by_hand[:, 0, 1, 1] = 7
    registered, wanted = (
        image_data(planes.transpose(0, 2, 3, 1), labels) for planes in (pixels, by_hand)
    )
    canary = read_canary(DOCUMENT, SHAPE, CLASSES)
    assert canary is not None
    before = registered.inputs.clone()
    found = canary.stamped(registered)
    assert torch.equal(found.inputs, wanted.inputs)
    assert torch.equal(found.targets, registered.targets)
    assert torch.equal(registered.inputs, before)  # the rows themselves stay as they are
    assert canary.planted(registered) == 0
    assert canary.planted(wanted) == 3  # those of class b


def test_a_row_with_a_part_of_the_trigger_was_not_planted() -> None:
    canary = read_canary(
        {"trigger": [[1, 0.1], [2, -3]], "units": "numbers", "target": "a"}, (3,), CLASSES
    )
    assert canary is not None
    inputs = torch.tensor([[9, 0.1, -3], [9, 0.1, 0], [0.1, -3, 0]])
    data = ClientData(inputs, torch.zeros(3, dtype=torch.int64))
    assert canary.planted(data) == 1  # 0.1 as float32 has it
    assert canary.stamped(data).inputs[1].tolist() == inputs[0].tolist()


@pytest.mark.parametrize(
    "changes", [{"trigger": [[6, 1]]}, {"trigger": [[-1, 1]]}, {"trigger": []}, {"target": "c"}]
)
def test_a_canary_of_other_rows_or_classes_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="canary"):
        read_canary({**DOCUMENT, **changes}, SHAPE, CLASSES)


def test_without_one_there_is_none() -> None:
    assert read_canary(None, SHAPE, CLASSES) is None
