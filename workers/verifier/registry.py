"""Verifiers by the guarantee class they judge."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from workers.errors import RefusedError
from workers.verifier import (
    certified_approximate,
    empirical,
    exact,
    exact_retrained,
    numerically_exact,
)
from workers.verifier.base import Check, ExactClaim, Report, Verifier
from workers.verifier.empirical_claim import EmpiricalClaim
from workers.verifier.exact_retrained import RetrainedClaim

Claim = ExactClaim | EmpiricalClaim | RetrainedClaim
_Claim = TypeVar("_Claim", ExactClaim, EmpiricalClaim, RetrainedClaim)


@dataclass(frozen=True, slots=True)
class Registered(Generic[_Claim]):
    """A verifier with the kind of claim that its class has."""

    kind: type[_Claim]
    verifier: Verifier[_Claim]

    @property
    def id(self) -> str:
        """The name certificates carry."""
        return self.verifier.id

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""
        return self.verifier.version

    def verify(self, claim: Claim) -> Report:
        """Return the verdict; a claim of another class has failed. Never raises."""
        if isinstance(claim, self.kind):
            return self.verifier.verify(claim)
        value = "a claim of another guarantee class"
        return Report("FAIL", (Check(1, "claim", value, None, f"of {self.id}", False),))


_VERIFIERS: dict[str, Verifier[Claim]] = {
    certified_approximate.VERIFIER.id: Registered(ExactClaim, certified_approximate.VERIFIER),
    empirical.VERIFIER.id: Registered(EmpiricalClaim, empirical.VERIFIER),
    exact.VERIFIER.id: Registered(ExactClaim, exact.VERIFIER),
    exact_retrained.VERIFIER.id: Registered(RetrainedClaim, exact_retrained.VERIFIER),
    numerically_exact.VERIFIER.id: Registered(ExactClaim, numerically_exact.VERIFIER),
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
