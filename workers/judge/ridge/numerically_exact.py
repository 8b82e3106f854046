"""The verifier of the guarantee `numerically-exact`: check 2 is head-bound."""

from dataclasses import dataclass

from workers.judge.base import ExactClaim, Report
from workers.judge.ridge import head_bound
from workers.judge.ridge.verdict import HeadCheck, judge

HEAD = HeadCheck(
    head_bound.NUMBER, head_bound.NAME, head_bound.THRESHOLD, head_bound.check_head
)


@dataclass(frozen=True, slots=True)
class NumericallyExactVerifier:
    """Judges erasure from a float64 ridge head by a proven distance to W*."""

    id: str = "numerically-exact"
    version: str = "1"

    def verify(self, claim: ExactClaim) -> Report:
        """Return the numbered verdict on `claim`."""
        return judge(claim, HEAD)


VERIFIER = NumericallyExactVerifier()
