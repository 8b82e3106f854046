"""A subject's rows as the bytes that the vault seals, and uploads as they were accepted."""

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from workers.arrays import Rows
from workers.errors import RefusedError


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One subject's rows: `records[i]` is the id of row i."""

    records: list[str]
    rows: Rows

    def without(self, erased: set[str]) -> "Block | None":
        """Return the block without some records, None if nothing remains."""
        keep = np.array([record not in erased for record in self.records])
        if not keep.any():
            return None
        return self.take(keep)

    def take(self, mask: NDArray[np.bool_]) -> "Block":
        """Return the rows where `mask` (m,) is true."""
        records = [record for record, wanted in zip(self.records, mask, strict=True) if wanted]
        return Block(records, Rows(self.rows.codes[mask], self.rows.labels[mask]))

    def joined(self, other: "Block") -> "Block":
        """Return this block's rows followed by another's."""
        codes = np.concatenate([self.rows.codes, other.rows.codes])
        labels = np.concatenate([self.rows.labels, other.rows.labels])
        return Block(self.records + other.records, Rows(codes, labels))


def encode_block(block: Block) -> bytes:
    """Return a block as safetensors; the ids travel as JSON in its one metadata field."""
    arrays: dict[str, NDArray[Any]] = {
        "codes": np.ascontiguousarray(block.rows.codes),
        "labels": np.ascontiguousarray(block.rows.labels),
    }
    return save(arrays, metadata={"records": json.dumps(block.records)})


def decode_block(data: bytes) -> Block:
    """Return the block that `encode_block` wrote."""
    arrays = load(data)
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length])["__metadata__"]
    return Block(json.loads(metadata["records"]), Rows(arrays["codes"], arrays["labels"]))


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """An accepted upload: features (n, d) float, labels (n,) int64 and ids (n,) each."""

    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    clients: list[str]
    records: list[str]
    subjects: list[str]


def decode_upload(data: bytes) -> Upload:
    """Return the arrays that `app.api.uploads` packed.

    Raises:
        RefusedError: The bytes are no such upload.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return Upload(
                features=arrays["features"],
                labels=arrays["labels"],
                clients=arrays["clients"].tolist(),
                records=arrays["records"].tolist(),
                subjects=arrays["subjects"].tolist(),
            )
    except (OSError, ValueError, KeyError):
        raise RefusedError("the stored upload cannot be read: send it again") from None
