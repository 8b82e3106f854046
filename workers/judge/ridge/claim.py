"""What is claimed of a ridge head: the published artifacts, and what they are judged by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Head, IntMatrix, Matrix, Rows
from workers.judge.base import PurgeClaim, RetainedSetClaim

Mode = Literal["full", "freivalds"]


@dataclass(frozen=True, slots=True, eq=False)
class BlockClaim:
    """Whose a block of rows is, and what its digests need: one place for each of its rows.

    records: ids. salts (m, 32) uint8. learned (m,) int64: numbers of versions. commitments:
    of the records, 32 bytes each, as the retained set has them.
    """

    client: str
    subject: str
    records: Sequence[str]
    salts: NDArray[np.uint8]
    learned: NDArray[np.int64]
    commitments: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class RowsClaim:
    """The stored blocks, in the order of the claim's rows, and the retained roots in the log.

    gone: commitment, content, and number of the version that it came with, of each row that
    the update removed. since: number of the last version that an erasure or a refit made, 0 if
    none did; before: the roots, in hex, of the retained sets of that version and of all after
    it, up to the one before the update. after: of the one published. None: the log has none.
    """

    blocks: Sequence[BlockClaim]
    gone: Sequence[tuple[bytes, bytes, int]]
    since: int
    before: Sequence[str | None]
    after: str | None


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

    retained_set: RetainedSetClaim
    purge: PurgeClaim


@dataclass(frozen=True, slots=True, eq=False)
class ExactClaim:
    """Everything a ridge guarantee says. rows: the retained rows, one for each record.

    messages: the retained messages, for a model whose rows were never sent; rows is empty
    then, and check 1 sums the messages, whatever the mode. masked: the round behind the
    update, for a model of which even the messages were never seen; check 1 unmasks its sum.
    contents: what the log says of the contents of `rows`, None where there are none. others:
    what the further requests claim of their own that the same update executed.
    """

    ridge: RidgeClaim
    rows: Sequence[Rows]
    retained_set: RetainedSetClaim
    purge: PurgeClaim
    messages: Sequence[ClaimedStatistics] | None = None
    masked: MaskedClaim | None = None
    contents: RowsClaim | None = None
    others: Sequence[RemovalClaim] = ()
