"""The input and the output of a verifier.

It reads published artifacts and retained rows, never a solver's memory. Whatever is missing,
malformed or odd in them fails the check that needed it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from lethe.certificates.statement import CheckPart

Result = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A check, and whether it failed only for lack of evidence (`undecided`)."""

    check: CheckPart
    undecided: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """PASS: every check passed. INCONCLUSIVE: none was refuted, but some were undecided."""

    result: Result
    checks: tuple[CheckPart, ...]


@dataclass(frozen=True, slots=True)
class UpdateClaim:
    """The rest of an update that served several requests, in any order, and its logged ends.

    earlier and later: the commitments that the requests before and after the judged one
    removed; added: those that a masked round had added before the first of them. The roots and
    counts are those of the versions before and after the update.
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
    """The published roots, and the full lists of their 32-byte record commitments.

    before and after are sorted as published; erased is in any order. If `update` is given, they
    are one link of its chain, and the versions' sets are its ends. The leaves have no content:
    rows of a ridge head use `ChainClaim` instead.
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
    """An attempt to read destroyed data: what, its digest, whether it was readable."""

    name: str
    digest: str
    readable: bool


@dataclass(frozen=True, slots=True)
class PurgeClaim:
    """Probes of everything that was shredded, and row ids: those erased, those still stored."""

    probes: Sequence[Probe]
    erased_rows: Sequence[str]
    retained_rows: Sequence[str]


Claim_contra = TypeVar("Claim_contra", contravariant=True)


class Verifier(Protocol[Claim_contra]):
    """A judge of one guarantee class and its kind of claim."""

    @property
    def id(self) -> str:
        """Its name in certificates."""

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""

    def verify(self, claim: Claim_contra) -> Report:
        """Return the verdict. Never raises for anything a claim may contain."""
