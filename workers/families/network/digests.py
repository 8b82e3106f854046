"""The salted digest of a network's row, in two parts, so that it opens without the row.

A silo that scores a row gives the digest of its inputs. With the record's id, its salt and the
label the judge, who has no row, computes the digest that the version commits to: it sees which
record a score is of, whether that was held out, and which class it has.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from workers.training.fedavg.base import ClientData


@dataclass(frozen=True, slots=True)
class RowDigest:
    """inputs: of what is in the row and whose it is; row: what the version commits to."""

    inputs: bytes
    row: bytes


def inputs_digest(client: str, data: ClientData, place: int, salt: bytes) -> bytes:
    """Return SHA-256(salt || SHA-256(client) || inputs), 32 bytes, of the row at a place.

    Without the salt, which is destroyed with its record, it confirms nobody's guess of a row.
    """
    found = hashlib.sha256(salt + hashlib.sha256(client.encode()).digest())
    found.update(np.ascontiguousarray(data.inputs[place].numpy()).tobytes())
    return found.digest()


def row_digest(inputs: bytes, record: str, salt: bytes, targets: bytes, *, held: bool) -> bytes:
    """Return SHA-256(inputs || salt || SHA-256(record) || held-out or trained || targets).

    targets: the bytes of the row's int64 target or targets.
    """
    found = hashlib.sha256(inputs + salt + hashlib.sha256(record.encode()).digest())
    found.update(b"held-out" if held else b"trained")
    found.update(targets)
    return found.digest()


def label_bytes(label: int) -> bytes:
    """Return a class as `row_digest` takes it."""
    return np.int64(label).tobytes()
