"""The claim about a ridge head: the published artifacts, and the data to judge them by."""

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
    """Stored rows of one owner, with what each row's leaf is computed from.

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

    since: number of the last version made by an erasure or a refit, 0 if none was; before: of
    that version and of all after it, up to the one before the update. after: of the published
    one.
    """

    since: int
    before: Sequence[str | None]
    after: str | None


@dataclass(frozen=True, slots=True)
class RemovedLeaf:
    """A leaf that an update removed; learned: the version that learned its row."""

    commitment: bytes
    content: bytes
    learned: int


@dataclass(frozen=True, slots=True)
class ChainClaim:
    """The retained sets of an update, from the version before it to the version after it.

    The roots and counts are those of the versions. removed: all leaves that the update removed,
    in any order; added: the commitments that a masked round had added before.
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
    """Another party's integer sums: gram (d, d) and moment (d, c) int64, rows their number."""

    gram: IntMatrix
    moment: IntMatrix
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class RidgeClaim:
    """A published ridge head and the constants it was registered with.

    statistics_digest: hex SHA-256 of the canonical statistics.

    For `exact`: head (d, c) float32; witness (k, d, c) float64 and bound: ‖Σ witness - W*‖_F <=
    bound is claimed. For `numerically-exact`: head (d, c) float64, ‖head - W*‖_F <= bound <=
    tolerance·‖head‖_F is claimed, and witness is not read.

    statistics: those of the digest, if check 5 is to run. mode `freivalds` tests them against
    the rows instead of recomputing them, and needs them; seed: at least 16 random bytes, drawn
    after statistics_digest was committed to (a forger must not know them before); rounds:
    independent tests, 1 to 16.

    For `certified-approximate`: as `numerically-exact`, with the registered drift budget as the
    tolerance. attested: distance of G from that of the rows, as stated by the clients who sent
    sketches of unseen rows (spectral norm, features).

    noise: σ² of the posterior that check 5 compares; before: the statistics before the erasure,
    if they are still available, and before_digest: the published digest that they must have.
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
    """A round's transcript: who released what, masked, and the data that unmask it.

    plan: the round's plan as JSON. roster: the members' public signing keys in PEM. messages:
    every message of the round, as it was signed. before: the statistics before the round, None
    for a model's first one, and before_digest their published digest. erased: the ids of the
    judged request's records.
    """

    plan: Mapping[str, Any]
    roster: Mapping[str, str]
    messages: Sequence[bytes]
    before: ClaimedStatistics | None
    before_digest: str | None
    erased: Sequence[str]


@dataclass(frozen=True, slots=True)
class RemovalClaim:
    """The part of a claim that belongs to one request of an update."""

    link: LinkClaim
    purge: PurgeClaim


@dataclass(frozen=True, slots=True, eq=False)
class ExactClaim:
    """Everything that a ridge guarantee claims about the requests of one update.

    removals: one for each judged request. rows: the retained rows, one for each record, by
    owner; they are read once, and once more if check 1 refutes claimed statistics. messages:
    the retained messages, for a model whose rows were never sent; rows is empty then, and check
    1 sums the messages, whatever the mode. masked: the round of the update, for a model whose
    messages were never seen either; check 1 unmasks its sum. unseen: the records of either, by
    id, with their commitments. contents: the logged roots of the contents of `rows`, None if
    there are none.
    """

    ridge: RidgeClaim
    rows: Iterable[BlockClaim]
    chain: ChainClaim
    removals: Sequence[RemovalClaim]
    messages: Sequence[ClaimedStatistics] | None = None
    masked: MaskedClaim | None = None
    unseen: Mapping[str, bytes] = field(default_factory=dict)
    contents: ContentsClaim | None = None
