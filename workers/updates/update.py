"""What a family returns to a job: a parsed upload, a version, an update."""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeVar

from lethe.certificates.cost import EARLIER, METHOD
from lethe.certificates.evidence import SALT_SIZE, record_commitment
from lethe.certificates.retained_tree import Leaf
from lethe.certificates.statement import NAMED
from workers.errors import RefusedError

if TYPE_CHECKING:  # keeps numpy out of a worker's start
    import numpy as np
    from numpy.typing import NDArray

LEAVES = 5000  # held as Python objects at a time

Owner = tuple[str, str]  # client, subject


class StoredBlock(Protocol):
    """What the vault seals for one owner. Only the model's family can read it."""

    @property
    def records(self) -> list[str]:
        """The ids of its records."""

    def encode(self) -> bytes:
        """Return the bytes that the vault seals."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedUpload:
    """blocks: the content as it is stored, by owner. saturated: codes that were clipped."""

    blocks: Mapping[Owner, StoredBlock]
    saturated: int

    @property
    def records(self) -> list[str]:
        """The ids of its records, in the order of the blocks."""
        return [record for block in self.blocks.values() for record in block.records]

    def salts(self) -> "NDArray[np.uint8]":
        """Return a salt (n, 32) for the commitment of each of `records`, in their order."""
        count = sum(len(block.records) for block in self.blocks.values())
        return as_digests(secrets.token_bytes(SALT_SIZE * count))


@dataclass(frozen=True, slots=True, eq=False)
class FreshRecords:
    """New records for a retained set.

    salts, commitments and contents (n, 32) uint8 are of `records`, in their order. order (n,)
    int64: their indices by ascending commitment, as the tree takes them.
    """

    records: Sequence[str]
    salts: "NDArray[np.uint8]"
    commitments: "NDArray[np.uint8]"
    contents: "NDArray[np.uint8]"
    order: "NDArray[np.int64]"

    @classmethod
    def salted(
        cls,
        records: Sequence[str],
        salts: "NDArray[np.uint8]",
        contents: "NDArray[np.uint8] | None" = None,
    ) -> "FreshRecords":
        """Return records under these salts; contents is None if no row of them is stored."""
        import numpy as np

        each = zip(split(salts), records, strict=True)
        commitments = as_digests(b"".join(record_commitment(*one) for one in each))
        if contents is None:
            contents = np.zeros_like(commitments)
        # Compared as bytes. "S" drops trailing zeros, which is harmless at equal lengths.
        order = np.argsort(commitments.view(f"S{SALT_SIZE}").ravel(), kind="stable")
        return cls(records, salts, commitments, contents, order)

    def __len__(self) -> int:
        return len(self.records)

    def ascending(self) -> Iterator[Leaf]:
        """Yield the leaves in the order of their commitments."""
        for start in range(0, len(self), LEAVES):
            own = self.order[start : start + LEAVES]
            yield from zip(split(self.commitments[own]), split(self.contents[own]), strict=True)


def as_digests(data: bytes) -> "NDArray[np.uint8]":
    """Return bytes as rows of 32, (n, 32)."""
    import numpy as np

    return np.frombuffer(data, dtype=np.uint8).reshape(-1, SALT_SIZE)


def split(rows: "NDArray[np.uint8]") -> list[bytes]:
    """Return each row of (n, 32) as bytes."""
    data = rows.tobytes()
    return [data[start : start + SALT_SIZE] for start in range(0, len(data), SALT_SIZE)]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A state as the artifacts that a version consists of.

    start: for a network trained from its rows, hex SHA-256 of its initial weights.
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
    """The next version of a model: its artifacts, its method and its claim.

    parameters and bounds are a certificate's: strings that name no client and no row.
    escalated: why the requested method fell back to retraining. secret: what only the verifier
    may see, sealed until the last certificate and then destroyed. repeated: the training was
    repeated with the same result. contents (n, 32): the salted digest of each row of a
    contribution, in the order of its records, if the retained set commits to them.
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
    contents: "NDArray[np.uint8] | None" = None

    @property
    def name(self) -> str:
        """The method with the settings that differ, as certificates and the log name it."""
        return self.parameters.get(NAMED, self.method)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A version without some records, and what becomes of the blocks that held them.

    rest: what is left of each block, by its subject's id; None if nothing is. dropped: ids of
    records removed with a block although no request names them. before: what the verifier
    compares with, sealed until the last certificate; it may hold erased rows. rows_gone: the
    salted digests of the removed rows; rows_learned: for a ridge head, the version in which
    each was learned. round_id: of the masked round that the removal was part of.
    """

    result: UpdateResult
    rest: Mapping[int, StoredBlock | None]
    dropped: frozenset[str] = frozenset()
    before: bytes | None = None
    rows_gone: tuple[str, ...] = ()
    rows_learned: tuple[int, ...] = ()
    round_id: str | None = None


class AnswerError(RefusedError):
    """A client's answer that does not fit its block. `release`: id of the question."""

    def __init__(self, release: str) -> None:
        self.release = release
        super().__init__("a client released what it cannot have contributed: it is asked again")


T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, str]:
    """Return the result of a call, and its seconds as certificates write them."""
    began = perf_counter()
    found = work()
    return found, f"{perf_counter() - began:.3f}"


def with_seconds(result: UpdateResult, seconds: str) -> UpdateResult:
    """Return a result that states its seconds, unless its method already stated them."""
    return replace(result, parameters={METHOD: seconds, **result.parameters})


def earlier_seconds(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameter for the seconds of all attempts so far, given their parameters."""
    known = [float(parameters[name]) for name in (EARLIER, METHOD) if name in parameters]
    return {EARLIER: f"{sum(known):.3f}"} if known else {}
