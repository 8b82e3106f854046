"""What is claimed of a ridge head: the published artifacts, and what they are judged by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Head, IntMatrix, Matrix, Rows
from workers.judge.base import PurgeClaim

Mode = Literal["full", "freivalds"]


@dataclass(frozen=True, slots=True, eq=False)
class BlockClaim:
    """Stored rows of one owner: whose they are, and what their leaves need, for each row.

    records: ids. salts (m, 32) uint8: of the rows' digests. id_salts (m, 32) uint8: of the
    records' commitments. learned (m,) int64: numbers of versions.
    """

    client: str
    subject: str
    records: Sequence[str]
    rows: Rows
    salts: NDArray[np.uint8]
    id_salts: NDArray[np.uint8]
    learned: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ContentsClaim:
    """The retained roots in the log, in hex; None where the log has none.

    since: number of the last version that an erasure or a refit made, 0 if none did; before:
    of that version and of all after it, up to the one before the update. after: of the one
    published.
    """

    since: int
    before: Sequence[str | None]
    after: str | None


@dataclass(frozen=True, slots=True)
class RemovedLeaf:
    """A leaf that an update removed; learned: the version that its row came with."""

    commitment: bytes
    content: bytes
    learned: int


@dataclass(frozen=True, slots=True)
class ChainClaim:
    """The retained sets of an update, from the version before it to the version after it.

    The roots and counts are those of the versions. removed: all that the update removed, in
    any order; added: the commitments that a masked round had added before.
    """

    before_root: bytes
    before_count: int
    after_root: bytes
    after_count: int
    removed: Sequence[RemovedLeaf]
    added: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class LinkClaim:
    """What one request removed, and the published roots and sizes of the sets around it.

    erased: record id, salt and commitment of each record. earlier and later: commitments that
    the requests before and after this one removed in the same update, in any order.
    """

    erased: Sequence[tuple[str, bytes, bytes]]
    earlier: Sequence[bytes]
    later: Sequence[bytes]
    before_root: bytes
    before_count: int
    after_root: bytes
    after_count: int


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedStatistics:
    """Integers somebody else summed: gram (d, d) and moment (d, c) int64, rows their number."""

    gram: IntMatrix
    moment: IntMatrix
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class RidgeClaim:
    """A published ridge head and the constants it was registered with.

    statistics_digest: hex SHA-256 of the canonical statistics.

    For `exact`: head (d, c) float32; witness (k, d, c) float64 and bound:
    ‖Σ witness - W*‖_F <= bound is claimed. For `numerically-exact`: head (d, c) float64,
    ‖head - W*‖_F <= bound <= tolerance·‖head‖_F is claimed, and witness is not read.

    statistics: those behind the digest, if there is to be a check 5. mode `freivalds`
    tests them against the rows instead of recomputing them, and needs them; seed: at least
    16 random bytes, drawn after statistics_digest was committed to (one who knows them
    before can forge); rounds: independent tests, 1 to 16.

    For `certified-approximate`: as `numerically-exact`, with the drift budget of the
    registration for a tolerance. attested: how far, on the word of clients who sent
    sketches of rows that nobody else has seen, G is from theirs (spectral norm, features).

    noise: σ² of the posterior that check 5 compares; before: the statistics before the
    erasure, where they may still be looked at, and before_digest: the published digest that
    they must have.
    """

    dimension: int
    classes: int
    exponents: Sequence[int]
    bits: int
    penalty: float
    statistics_digest: str
    head: Head | Matrix
    witness: Matrix
    bound: float
    tolerance: float = 1e-6
    statistics: ClaimedStatistics | None = None
    mode: Mode = "full"
    seed: bytes | None = None
    rounds: int = 1
    noise: float = 1.0
    before: ClaimedStatistics | None = None
    before_digest: str | None = None
    attested: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class MaskedClaim:
    """A round's transcript: who released what, masked, and how the masks came off.

    plan: the round's plan as JSON. roster: the members' public signing keys in PEM. messages:
    every message of the round, as it was signed. before: the statistics before the round,
    None for a model's first one, and before_digest the digest that was published of them.
    erased: the ids of the judged request's records.
    """

    plan: Mapping[str, Any]
    roster: Mapping[str, str]
    messages: Sequence[bytes]
    before: ClaimedStatistics | None
    before_digest: str | None
    erased: Sequence[str]


@dataclass(frozen=True, slots=True)
class RemovalClaim:
    """What one request of an update claims of its own."""

    link: LinkClaim
    purge: PurgeClaim


@dataclass(frozen=True, slots=True, eq=False)
class ExactClaim:
    """Everything a ridge guarantee says of the requests that one update executed.

    removals: one for each request that is judged. rows: the retained rows, one for each
    record, by owner; they are read once, and once more where check 1 refutes claimed
    statistics. messages: the retained messages, for a model whose rows were never sent;
    rows is empty then, and check 1 sums the messages, whatever the mode. masked: the round
    behind the update, for a model of which even the messages were never seen; check 1 unmasks
    its sum. unseen: the records of either, by id, with their commitments. contents: what the
    log says of the contents of `rows`, None where there are none.
    """

    ridge: RidgeClaim
    rows: Iterable[BlockClaim]
    chain: ChainClaim
    removals: Sequence[RemovalClaim]
    messages: Sequence[ClaimedStatistics] | None = None
    masked: MaskedClaim | None = None
    unseen: Mapping[str, bytes] = field(default_factory=dict)
    contents: ContentsClaim | None = None
