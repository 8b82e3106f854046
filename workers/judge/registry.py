"""Verifiers by the guarantee class they judge."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lethe.catalogue import CHECKS
from workers.errors import RefusedError
from workers.judge import exact_retrained, refitted
from workers.judge.base import Report, Verifier
from workers.judge.certified import logistic as certified_logistic
from workers.judge.certified import noisy as certified_noisy
from workers.judge.certified.logistic import LogisticClaim
from workers.judge.certified.noisy import NoisyClaim
from workers.judge.checks import judged, report_of
from workers.judge.exact_retrained import RetrainedClaim
from workers.judge.refitted import RefittedClaim, RerunClaim
from workers.judge.ridge import verdict as ridge
from workers.judge.ridge.claim import ExactClaim
from workers.judge.samples import empirical
from workers.judge.samples.empirical_claim import EmpiricalClaim

Claim = (
    ExactClaim
    | EmpiricalClaim
    | LogisticClaim
    | NoisyClaim
    | RefittedClaim
    | RerunClaim
    | RetrainedClaim
)
_Claim = TypeVar(
    "_Claim",
    ExactClaim,
    EmpiricalClaim,
    LogisticClaim,
    NoisyClaim,
    RefittedClaim,
    RerunClaim,
    RetrainedClaim,
)


@dataclass(frozen=True, slots=True)
class ClaimVerifier(Generic[_Claim]):
    """A verifier and the kind of claim of its class."""

    kind: type[_Claim]
    verifier: Verifier[_Claim]

    @property
    def id(self) -> str:
        """Its name in certificates."""
        return self.verifier.id

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""
        return self.verifier.version

    def verify(self, claim: Claim) -> Report:
        """Return the verdict; a claim of another class has failed. Never raises."""
        if isinstance(claim, self.kind):
            return self.verifier.verify(claim)
        value = f"a claim of another guarantee class than {self.id}"
        return report_of([judged(CHECKS["claim"], value, passed=False)])


@dataclass(frozen=True, slots=True)
class ByKind:
    """Verifiers of one class for several kinds of model, chosen by the kind of claim.

    They share a version: a change of either is one of the class.
    """

    members: tuple[ClaimVerifier[Any], ...]

    @property
    def id(self) -> str:
        """Its name in certificates."""
        return self.members[0].id

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""
        return self.members[0].version

    def verify(self, claim: Claim) -> Report:
        """Return the verdict; a claim of another class has failed. Never raises."""
        fitting = [one for one in self.members if isinstance(claim, one.kind)]
        return (fitting or self.members)[0].verify(claim)


_VERIFIERS: dict[str, Verifier[Claim]] = {
    ridge.CERTIFIED.id: ByKind(
        (
            ClaimVerifier(ExactClaim, ridge.CERTIFIED),
            ClaimVerifier(LogisticClaim, certified_logistic.VERIFIER),
            ClaimVerifier(NoisyClaim, certified_noisy.VERIFIER),
        )
    ),
    empirical.VERIFIER.id: ClaimVerifier(EmpiricalClaim, empirical.VERIFIER),
    ridge.EXACT.id: ByKind(
        (
            ClaimVerifier(ExactClaim, ridge.EXACT),
            ClaimVerifier(RefittedClaim, refitted.EXACT),
        )
    ),
    exact_retrained.VERIFIER.id: ByKind(
        (
            ClaimVerifier(RetrainedClaim, exact_retrained.VERIFIER),
            ClaimVerifier(RefittedClaim, refitted.VERIFIER),
        )
    ),
    refitted.RERUN.id: ClaimVerifier(RerunClaim, refitted.RERUN),
    ridge.NUMERICALLY_EXACT.id: ClaimVerifier(ExactClaim, ridge.NUMERICALLY_EXACT),
}


def get(guarantee: str) -> Verifier[Claim]:
    """Return the verifier of a guarantee class. Raises RefusedError naming the known ones."""
    try:
        return _VERIFIERS[guarantee]
    except KeyError:
        raise RefusedError(
            f"no verifier for this guarantee: choose one of {', '.join(known())}"
        ) from None


def known() -> tuple[str, ...]:
    """Return the guarantee classes that can be judged, sorted."""
    return tuple(sorted(_VERIFIERS))
