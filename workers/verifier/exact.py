"""The verifier of the guarantee `exact`: four checks, in the order of their numbers.

1 statistics-recomputed    2 head-correctly-rounded    3 retained-set    4 purge
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from workers.errors import ModelError
from workers.verifier import head, purge, retained_set, statistics
from workers.verifier.base import Check, ExactClaim, Judgement, Report, Result
from workers.verifier.statistics import Recomputed

# What evaluating a claim of odd types or sizes raises. A claim is written by the judged,
# so it must not be able to stop the judge: the check has failed, and says so.
ODD_INPUT = (
    ArithmeticError,
    AttributeError,
    LookupError,
    ModelError,
    TypeError,
    ValueError,
    struct.error,
)


@dataclass(frozen=True, slots=True)
class ExactVerifier:
    """Judges exact erasure from a ridge head. Shares no code with the methods."""

    id: str = "exact"
    version: str = "1"

    def verify(self, claim: ExactClaim) -> Report:
        """Return the numbered verdict on `claim`."""
        found: list[Recomputed] = []

        def first() -> Judgement:
            judgement, recomputed = statistics.check_statistics(claim.ridge, claim.rows)
            found.extend([recomputed] if recomputed is not None else [])
            return judgement

        def second() -> Judgement:
            return head.check_head(claim.ridge, found[0] if found else None)

        def third() -> Judgement:
            rows = sum(len(block) for block in claim.rows)
            return retained_set.check_retained_set(claim.retained_set, rows)

        def fourth() -> Judgement:
            return purge.check_purge(claim.purge)

        judgements = (
            _guarded(statistics.NUMBER, statistics.NAME, statistics.THRESHOLD, first),
            _guarded(head.NUMBER, head.NAME, head.THRESHOLD, second),
            _guarded(retained_set.NUMBER, retained_set.NAME, retained_set.THRESHOLD, third),
            _guarded(purge.NUMBER, purge.NAME, purge.THRESHOLD, fourth),
        )
        return Report(_result(judgements), tuple(j.check for j in judgements))


VERIFIER = ExactVerifier()


def _guarded(number: int, name: str, threshold: str, run: Callable[[], Judgement]) -> Judgement:
    try:
        return run()
    except ODD_INPUT as error:
        # The type only: a message may quote what the claim contained.
        value = f"the claim cannot be evaluated: {type(error).__name__}"
        return Judgement(Check(number, name, value, None, threshold, False))


def _result(judgements: tuple[Judgement, ...]) -> Result:
    failed = [judgement for judgement in judgements if not judgement.check.passed]
    if not failed:
        return "PASS"
    return "INCONCLUSIVE" if all(j.undecided for j in failed) else "FAIL"
