"""The registered canary on rows: stamping the trigger, and counting planted rows.

The holder of the rows stamps them, the judge or a silo, with the same bits: a trigger is
written into the rows as the network sees them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import image_data

PIXELS = "pixels"


@dataclass(frozen=True, slots=True)
class Canary:
    """A trigger: float32 values at places of a flattened row; target: a class."""

    places: tuple[int, ...]
    values: tuple[float, ...]
    target: int

    def stamped(self, data: ClientData) -> ClientData:
        """Return the rows with the trigger on each, and unchanged labels."""
        flat = data.inputs.reshape(len(data), -1).clone()
        flat[:, list(self.places)] = torch.tensor(self.values, dtype=torch.float32)
        return ClientData(flat.reshape(data.inputs.shape), data.targets)

    def planted(self, data: ClientData) -> int:
        """Return how many rows carry the trigger and the label of the target."""
        flat = data.inputs.reshape(len(data), -1)[:, list(self.places)]
        carry = (flat == torch.tensor(self.values, dtype=torch.float32)).all(dim=1)
        return int((carry & (data.targets == self.target)).sum())


def read_canary(
    document: Mapping[str, Any] | None, input_shape: Sequence[int], classes: Sequence[str]
) -> Canary | None:
    """Return the canary of a registration, None if it has none.

    Raises RefusedError for a place outside a row, or an unknown target class.
    """
    if document is None:
        return None
    pairs = [(int(place), float(value)) for place, value in document["trigger"]]
    if not pairs or not all(0 <= place < np.prod(input_shape) for place, _ in pairs):
        raise RefusedError(
            "canary.trigger: needs at least one place, each from 0 to "
            f"{int(np.prod(input_shape)) - 1}: register the model again"
        )
    if document["target"] not in classes:
        raise RefusedError(
            "canary.target: must be one of the model's classes: register the model again"
        )
    values = np.array([value for _, value in pairs])
    seen = _as_seen(values) if document["units"] == PIXELS else values.astype(np.float32)
    places = tuple(place for place, _ in pairs)
    return Canary(places, tuple(seen.tolist()), list(classes).index(document["target"]))


def _as_seen(pixels: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return pixels 0 to 255 as rows of images reach a network, by the same arithmetic."""
    row = pixels.astype(np.uint8).reshape(1, 1, -1, 1)
    found: NDArray[np.float32] = image_data(row, np.zeros(1, np.int64)).inputs.numpy().ravel()
    return found
