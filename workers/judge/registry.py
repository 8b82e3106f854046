"""Verifiers by the guarantee class they judge."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class ByKind:
    """The verifiers of one guarantee class, by the kind of claim that each judges.

    They share a name and a version: a change of one is one of the class.
    """

    members: Mapping[type, Verifier[Any]]

    @property
    def id(self) -> str:
        """Its name in certificates."""
        return next(iter(self.members.values())).id

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""
        return next(iter(self.members.values())).version

    def verify(self, claim: Claim) -> Report:
        """Return the verdict; a claim of another class has failed. Never raises."""
        for kind, verifier in self.members.items():
            if isinstance(claim, kind):
                return verifier.verify(claim)
        value = f"a claim of another guarantee class than {self.id}"
        return report_of([judged(CHECKS["claim"], value, passed=False)])


_CLASSES = (
    ByKind(
        {
            ExactClaim: ridge.CERTIFIED,
            LogisticClaim: certified_logistic.VERIFIER,
            NoisyClaim: certified_noisy.VERIFIER,
        }
    ),
    ByKind({EmpiricalClaim: empirical.VERIFIER}),
    ByKind({ExactClaim: ridge.EXACT, RefittedClaim: refitted.EXACT}),
    ByKind({RetrainedClaim: exact_retrained.VERIFIER, RefittedClaim: refitted.VERIFIER}),
    ByKind({RerunClaim: refitted.RERUN}),
    ByKind({ExactClaim: ridge.NUMERICALLY_EXACT}),
)
_VERIFIERS: dict[str, Verifier[Claim]] = {one.id: one for one in _CLASSES}


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
