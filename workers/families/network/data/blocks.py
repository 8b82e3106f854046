"""A subject's stored rows for a deep model: inputs and labels."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from workers.arrays import metadata_of
from workers.errors import RefusedError
from workers.updates.update import StoredBlock


@dataclass(frozen=True, slots=True, eq=False)
class InputBlock:
    """inputs (m, *shape) float32, or uint8 planes; labels (m,) or (m, h, w) int64.

    `records[i]` is the id of row i.
    """

    records: list[str]
    inputs: NDArray[Any]
    labels: NDArray[np.int64]

    def without(self, erased: set[str]) -> "InputBlock | None":
        """Return the block without some records, None if nothing remains."""
        keep = np.array([record not in erased for record in self.records])
        return self.take(keep) if keep.any() else None

    def take(self, mask: NDArray[np.bool_]) -> "InputBlock":
        """Return the rows where `mask` (m,) is true."""
        records = [record for record, wanted in zip(self.records, mask, strict=True) if wanted]
        return InputBlock(records, self.inputs[mask], self.labels[mask])

    def joined(self, other: "InputBlock") -> "InputBlock":
        """Return this block's rows followed by another's, which are of the same type.

        Raises RefusedError if one holds pixels and the other numbers.
        """
        if self.inputs.dtype != other.inputs.dtype:
            raise RefusedError(
                "inputs: all rows of a subject must be pixels (uint8) or all float32: "
                "send the kind that was sent before"
            )
        return InputBlock(
            self.records + other.records,
            np.concatenate([self.inputs, other.inputs]),
            np.concatenate([self.labels, other.labels]),
        )

    def encode(self) -> bytes:
        """Return the block as safetensors; the ids travel as JSON in its metadata."""
        arrays = {
            "inputs": np.ascontiguousarray(self.inputs),
            "labels": np.ascontiguousarray(self.labels),
        }
        return save(arrays, metadata={"records": json.dumps(self.records)})


def join(stored: InputBlock, fresh: StoredBlock) -> InputBlock:
    """Return both blocks of one owner as one.

    Raises RefusedError if the fresh one is of another kind of model, or of other inputs.
    """
    if not isinstance(fresh, InputBlock):
        raise RefusedError(
            "stored rows and sent statistics of one client cannot be added up: send rows"
        )
    return stored.joined(fresh)


def decode_block(data: bytes) -> InputBlock:
    """Decode the bytes of `InputBlock.encode`."""
    arrays = load(data)
    records = json.loads(metadata_of(data)["records"])
    return InputBlock(records, arrays["inputs"], arrays["labels"])
