"""What each trial shares: commitments, digests, purge probes, and a verdict that is counted."""

import hashlib
from collections.abc import Collection, Iterable

import numpy as np

from benchmarks.soundness.providers import is_honest
from benchmarks.soundness.rates import VERDICTS, Tally
from workers.arrays import Rows
from workers.families.ridge.blocks import SALT, RowBlock
from workers.families.ridge.rows import grown_digest, row_digests, rows_digest
from workers.judge.base import Probe, PurgeClaim, Report, RetainedSetClaim
from workers.judge.merkle import merkle_root
from workers.judge.ridge.claim import BlockClaim, RowsClaim

OWNER = ("client", "subject")


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


def contents(
    rows: Rows, erased: Collection[int], stored: Rows, missing: Collection[int] = ()
) -> RowsClaim:
    """Return the claim that `stored` is what an erasure left of one contribution's rows.

    missing: as in `retained_set`. Who forges the stored rows publishes their digest as well.
    """
    names = [str(row) for row in range(len(rows))]
    salts = hashlib.shake_256(b"salts").digest(SALT * len(rows))
    marks = (
        np.frombuffer(salts, dtype=np.uint8).reshape(-1, SALT),
        np.ones(len(rows), dtype=np.int64),
    )
    whole = row_digests(RowBlock(names, rows, *marks), OWNER)
    gone = {*erased, *missing}
    kept = np.array([row not in gone for row in range(len(rows))])
    stays = [name for name, keep in zip(names, kept, strict=True) if keep]
    left = RowBlock(stays, stored, *(mark[kept] for mark in marks))
    nothing = rows_digest(())
    return RowsClaim(
        [BlockClaim(*OWNER, left.records, left.salts, left.learned)],
        [(whole[row].hex(), 1) for row in sorted(gone)],
        since=0,
        before=[nothing, grown_digest(nothing, rows_digest(whole))],
        after=rows_digest(row_digests(left, OWNER)),
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
