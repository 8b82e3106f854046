"""The verifier of the guarantee `exact`: check 2 is head-correctly-rounded."""

from dataclasses import dataclass

from workers.judge.base import ExactClaim, Report
from workers.judge.ridge import head
from workers.judge.ridge.verdict import HeadCheck, judge

HEAD = HeadCheck(head.NUMBER, head.NAME, head.THRESHOLD, head.check_head)


@dataclass(frozen=True, slots=True)
class ExactVerifier:
    """Judges exact erasure from a ridge head. Shares no code with the methods."""

    id: str = "exact"
    version: str = "1"

    def verify(self, claim: ExactClaim) -> Report:
        """Return the numbered verdict on `claim`."""
        return judge(claim, HEAD)


VERIFIER = ExactVerifier()
