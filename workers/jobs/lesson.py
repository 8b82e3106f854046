"""A contribution as a model learns it: its records, and what is stored of each owner."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Owner = tuple[str, str]  # client, subject


class StoredBlock(Protocol):
    """What the vault seals of one owner. Only the model's family can read it."""

    @property
    def records(self) -> list[str]:
        """The ids of the records in it."""

    def encode(self) -> bytes:
        """Return the bytes that the vault seals."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedUpload:
    """records: ids in the upload's order. blocks: what it holds, as it is stored, by owner.

    saturated: codes that the quantiser clipped.
    """

    records: list[str]
    blocks: Mapping[Owner, StoredBlock]
    saturated: int
