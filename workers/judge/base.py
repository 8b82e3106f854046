"""What a verifier is given, and what it says.

It reads published artifacts and retained rows, never a solver's memory. Whatever is
missing, malformed or odd in them fails the check that needed it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from lethe.certificates.statement import CheckPart
from workers.arrays import Head, IntMatrix, Matrix, Rows
from workers.judge.ridge.row_claim import RowsClaim

Result = Literal["PASS", "FAIL", "INCONCLUSIVE"]
Mode = Literal["full", "freivalds"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A check, and whether it failed only for lack of evidence (`undecided`)."""

    check: CheckPart
    undecided: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """PASS: every check passed. INCONCLUSIVE: none was refuted, some were not decided."""

    result: Result
    checks: tuple[CheckPart, ...]


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


@dataclass(frozen=True, slots=True)
class UpdateClaim:
    """The rest of an update that served several requests, in any order, and its logged ends.

    earlier and later: the commitments that the requests before and after the judged one
    removed; added: those that a masked round had added before the first of them. The roots
    and counts are those of the versions before and after the update.
    """

    earlier: Sequence[bytes]
    later: Sequence[bytes]
    before_root: bytes
    before_count: int
    after_root: bytes
    after_count: int
    added: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class RetainedSetClaim:
    """The published roots, and the full lists of 32-byte record commitments behind them.

    before and after are sorted as published; erased is in any order. Where `update` is
    given, they are one link of its chain, and the versions' sets are its ends.
    """

    before: Sequence[bytes]
    after: Sequence[bytes]
    erased: Sequence[bytes]
    before_root: bytes
    before_count: int
    after_root: bytes
    after_count: int
    update: UpdateClaim | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """A try to read something that must be gone: what, its digest, whether it was read."""

    name: str
    digest: str
    readable: bool


@dataclass(frozen=True, slots=True)
class PurgeClaim:
    """Probes of all that was shredded, and row ids: those erased, those still stored."""

    probes: Sequence[Probe]
    erased_rows: Sequence[str]
    retained_rows: Sequence[str]


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


@dataclass(frozen=True, slots=True, eq=False)
class ExactClaim:
    """Everything a ridge guarantee says. rows: the retained rows, one for each record.

    messages: the retained messages, for a model whose rows were never sent; rows is empty
    then, and check 1 sums the messages, whatever the mode. masked: the round behind the
    update, for a model of which even the messages were never seen; check 1 unmasks its sum.
    contents: what the log says of the contents of `rows`, None where there are none.
    """

    ridge: RidgeClaim
    rows: Sequence[Rows]
    retained_set: RetainedSetClaim
    purge: PurgeClaim
    messages: Sequence[ClaimedStatistics] | None = None
    masked: MaskedClaim | None = None
    contents: RowsClaim | None = None


Claim_contra = TypeVar("Claim_contra", contravariant=True)


class Verifier(Protocol[Claim_contra]):
    """A judge of one guarantee class, which has claims of its own."""

    @property
    def id(self) -> str:
        """The name certificates carry."""

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""

    def verify(self, claim: Claim_contra) -> Report:
        """Return the verdict. Never raises for anything a claim may contain."""
