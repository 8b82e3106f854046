"""What a family returns to a job: a parsed upload, a version, an update."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lethe.certificates.retained import SALT_SIZE

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

    def salts(self) -> dict[str, bytes]:
        """Return a salt of 32 bytes for the commitment of each record."""
        drawn = secrets.token_bytes(SALT_SIZE * len(self.records))
        places = range(0, len(drawn), SALT_SIZE)
        return {
            record: drawn[place : place + SALT_SIZE]
            for place, record in zip(places, self.records, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Encoded:
    """A state as the artifacts that a version consists of.

    start: of a network that was trained from its rows, hex SHA-256 of its initial weights.
    """

    head: bytes
    state: bytes
    statistics: str
    start: str | None = None

    @property
    def head_digest(self) -> str:
        """Hex SHA-256 of the head's file."""
        return hashlib.sha256(self.head).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class UpdateResult:
    """The next version of a model: its artifacts, who made them, what is claimed of them.

    parameters and bounds are a certificate's: strings, of no client and no row. escalated:
    why the method that was asked for gave way to a retraining. secret: what only the verifier
    may see, sealed until the last certificate and then destroyed. repeated: it is a training
    that was repeated with the same result. contents: the salted digest of each row of a
    contribution, by record, where the retained set commits to them.
    """

    encoded: Encoded
    method: str
    method_version: str
    claim: str
    parameters: Mapping[str, str]
    bounds: Mapping[str, str] = field(default_factory=dict)
    escalated: str | None = None
    secret: bytes | None = None
    repeated: bool = False
    contents: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The method with the settings that differ, as certificates and the log name it."""
        return self.parameters.get("attempt", self.method)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A version without some records, and what becomes of the blocks that held them.

    rest: what stays of each block, by its subject's id; None if nothing does. dropped: ids
    of records that go with a block though nobody asked. before: what the verifier compares
    with, to be sealed until the last certificate; it may hold what is erased. rows_gone: the
    salted digests of the rows that go; rows_learned: of a ridge head, with which version each
    of them came. round_id: of the masked round that the removal was part of.
    """

    result: UpdateResult
    rest: Mapping[int, StoredBlock | None]
    dropped: frozenset[str] = frozenset()
    before: bytes | None = None
    rows_gone: tuple[str, ...] = ()
    rows_learned: tuple[int, ...] = ()
    round_id: str | None = None
