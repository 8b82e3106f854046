"""What each trial shares: commitments, purge probes, and a verdict that is counted."""

import hashlib
from collections.abc import Collection, Iterable

from benchmarks.soundness.providers import is_honest
from benchmarks.soundness.rates import VERDICTS, Tally
from workers.verifier.base import Probe, PurgeClaim, Report, RetainedSetClaim
from workers.verifier.retained_set import merkle_root


def commitment(row: int) -> bytes:
    """Return the 32 bytes that stand for a record in the retained set."""
    return hashlib.sha256(f"record {row}".encode()).digest()


def retained_set(
    rows: int, erased: Collection[int], missing: Collection[int] = ()
) -> RetainedSetClaim:
    """Return the sets of an erasure of `erased` of records 0 … rows - 1.

    missing: records that the provider left out of the later set, too, with a root and a
    count that fit.
    """
    gone = {*erased, *missing}
    before = sorted(commitment(row) for row in range(rows))
    after = sorted(commitment(row) for row in range(rows) if row not in gone)
    return RetainedSetClaim(
        before,
        after,
        [commitment(row) for row in erased],
        merkle_root(before),
        len(before),
        merkle_root(after),
        len(after),
    )


def purge(rows: int, erased: Collection[int], missing: Collection[int] = ()) -> PurgeClaim:
    """Return the probes of an erasure after which nothing old can be read."""
    gone = {*erased, *missing}
    return PurgeClaim(
        [Probe("model", "ab" * 32, False), Probe("state", "cd" * 32, False)],
        [str(row) for row in erased],
        [str(row) for row in range(rows) if row not in gone],
    )


def tally(
    guarantee: str, setting: str, provider: str, block: str | None, reports: Iterable[Report]
) -> Tally:
    """Return the verdicts on one provider's claims, counted."""
    verdicts = dict.fromkeys(VERDICTS, 0)
    reasons: dict[str, int] = {}
    for report in reports:
        verdicts[report.result] += 1
        for check in report.checks:
            if not check.passed:
                reasons[check.name] = reasons.get(check.name, 0) + 1
    honest = is_honest(provider)
    return Tally(guarantee, setting, provider, honest, block, verdicts, reasons)
