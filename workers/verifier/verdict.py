"""The checks of a ridge guarantee in the order of their numbers, and the verdict on them.

1 statistics (of rows, messages or a round)   2 head (each guarantee has its own)
3 retained-set    4 purge    5 posterior (where the claim brings its statistics)
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from workers.errors import ModelError
from workers.verifier import (
    freivalds,
    masked,
    posterior,
    purge,
    resummed,
    retained_set,
    statistics,
)
from workers.verifier.base import Check, ExactClaim, Judgement, Report, Result, RidgeClaim
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
class HeadCheck:
    """Check 2 of one guarantee: its name, its threshold, and what runs it."""

    number: int
    name: str
    threshold: str
    run: Callable[[RidgeClaim, Recomputed | None], Judgement]


def judge(claim: ExactClaim, head: HeadCheck) -> Report:
    """Return the numbered verdict. Never raises for anything a claim may contain."""
    found: list[Recomputed] = []

    def recomputed() -> Judgement:
        judgement, by_rows = statistics.check_statistics(claim.ridge, claim.rows)
        found.extend([by_rows] if by_rows is not None else [])
        return judgement

    def tested() -> Judgement:
        judgement, by_claim = freivalds.check_claimed(claim.ridge, claim.rows)
        found.extend([by_claim] if by_claim is not None else [])
        return judgement

    def summed() -> Judgement:
        stored = sum(len(block) for block in claim.rows)
        judgement, by_sum = resummed.check_resummed(claim.ridge, claim.messages or (), stored)
        found.extend([by_sum] if by_sum is not None else [])
        return judgement

    def unmasked() -> Judgement:
        assert claim.masked is not None
        judgement, by_round = masked.check_masked(claim.ridge, claim.masked)
        found.extend([by_round] if by_round is not None else [])
        return judgement

    def second() -> Judgement:
        judgement = head.run(claim.ridge, found[0] if found else None)
        # Where check 1 could not decide on statistics, nothing here refutes the head.
        return judgement if found else replace(judgement, undecided=first.undecided)

    def third() -> Judgement:
        rows = sum(len(block) for block in claim.rows)
        if claim.masked is not None:
            rows += found[0].rows if found else 0
        if claim.messages is not None:
            rows += sum(message.rows for message in claim.messages)
        return retained_set.check_retained_set(claim.retained_set, rows)

    def fourth() -> Judgement:
        return purge.check_purge(claim.purge)

    def fifth() -> Judgement:
        if (claim.messages is not None or claim.masked is not None) and not found:
            return posterior.failed("the messages cannot be summed")
        return posterior.check_posterior(claim.ridge, claim.rows, found[0] if found else None)

    if claim.masked is not None:
        first = _guarded(masked.NUMBER, masked.NAME, masked.THRESHOLD, unmasked)
    elif claim.messages is not None:
        first = _guarded(resummed.NUMBER, resummed.NAME, resummed.THRESHOLD, summed)
    elif claim.ridge.mode == "freivalds":
        first = _guarded(freivalds.NUMBER, freivalds.NAME, freivalds.THRESHOLD, tested)
    else:
        first = _guarded(statistics.NUMBER, statistics.NAME, statistics.THRESHOLD, recomputed)
    judgements = [
        first,
        _guarded(head.number, head.name, head.threshold, second),
        _guarded(retained_set.NUMBER, retained_set.NAME, retained_set.THRESHOLD, third),
        _guarded(purge.NUMBER, purge.NAME, purge.THRESHOLD, fourth),
    ]
    if claim.ridge.statistics is not None:
        judgements.append(
            _guarded(posterior.NUMBER, posterior.NAME, posterior.THRESHOLD, fifth)
        )
    return Report(_result(judgements), tuple(j.check for j in judgements))


def _guarded(number: int, name: str, threshold: str, run: Callable[[], Judgement]) -> Judgement:
    try:
        return run()
    except ODD_INPUT as error:
        # The type only: a message may quote what the claim contained.
        value = f"the claim cannot be evaluated: {type(error).__name__}"
        return Judgement(Check(number, name, value, None, threshold, False))


def _result(judgements: list[Judgement]) -> Result:
    failed = [judgement for judgement in judgements if not judgement.check.passed]
    if not failed:
        return "PASS"
    return "INCONCLUSIVE" if all(j.undecided for j in failed) else "FAIL"
