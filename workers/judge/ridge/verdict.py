"""The checks of a ridge guarantee in the order of their numbers, and the verdict on them.

1 statistics (of rows, messages or a round)   2 head (each guarantee has its own)
3 retained-set    4 purge    5 posterior (where the claim brings its statistics)
6 rows-before    7 rows-after (where the rows are here)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from workers.judge import (
    purge,
    retained_set,
)
from workers.judge.base import ExactClaim, Judgement, Report, RidgeClaim
from workers.judge.guard import guarded, numbered, report_of
from workers.judge.ridge import (
    freivalds,
    masked,
    posterior,
    resummed,
    row_digests,
    statistics,
)
from workers.judge.ridge.statistics import Recomputed


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
        first = guarded(masked.NUMBER, masked.NAME, masked.THRESHOLD, unmasked)
    elif claim.messages is not None:
        first = guarded(resummed.NUMBER, resummed.NAME, resummed.THRESHOLD, summed)
    elif claim.ridge.mode == "freivalds":
        first = guarded(freivalds.NUMBER, freivalds.NAME, freivalds.THRESHOLD, tested)
    else:
        first = guarded(statistics.NUMBER, statistics.NAME, statistics.THRESHOLD, recomputed)
    judgements = [
        first,
        guarded(head.number, head.name, head.threshold, second),
        guarded(retained_set.NUMBER, retained_set.NAME, retained_set.THRESHOLD, third),
        guarded(purge.NUMBER, purge.NAME, purge.THRESHOLD, fourth),
    ]
    if claim.ridge.statistics is not None:
        judgements.append(guarded(posterior.NUMBER, posterior.NAME, posterior.THRESHOLD, fifth))
    if claim.contents is not None:
        judgements += row_digests.check_rows(claim.contents, claim.rows)
    return report_of(numbered(judgements))
