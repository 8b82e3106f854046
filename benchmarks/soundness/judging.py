"""What each trial shares: commitments, digests, purge probes, and a verdict that is counted."""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.soundness.providers import is_honest
from benchmarks.soundness.rates import VERDICTS, Tally
from lethe.certificates.evidence import record_commitment
from lethe.certificates.retained_tree import retained_root
from workers.arrays import Rows
from workers.families.ridge.rows import row_digests
from workers.families.ridge.stored import SALT, RowBlock
from workers.judge.base import Probe, PurgeClaim, Report, RetainedSetClaim
from workers.judge.merkle import EMPTY, merkle_root
from workers.judge.ridge.claim import (
    BlockClaim,
    ChainClaim,
    ContentsClaim,
    LinkClaim,
    RemovedLeaf,
)

OWNER = ("client", "subject")


def commitment(row: int) -> bytes:
    """Return the commitment of a record in the retained set."""
    return record_commitment(_salt(row), str(row))


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


@dataclass(frozen=True, slots=True, eq=False)
class RowsClaims:
    """What is claimed of an erasure whose rows are stored."""

    blocks: list[BlockClaim]
    chain: ChainClaim
    link: LinkClaim
    contents: ContentsClaim


def rows_claims(
    rows: Rows, erased: Collection[int], stored: Rows, missing: Collection[int] = ()
) -> RowsClaims:
    """Return the claims that `stored` is what an erasure left of one contribution's rows.

    missing: records that the provider left out of the later set, too, with roots and counts
    that fit.
    """
    names = [str(row) for row in range(len(rows))]
    drawn = hashlib.shake_256(b"salts").digest(SALT * len(rows))
    salts = np.frombuffer(drawn, dtype=np.uint8).reshape(-1, SALT)
    ids = np.frombuffer(b"".join(map(_salt, range(len(rows)))), dtype=np.uint8)
    id_salts, learned = ids.reshape(-1, SALT), np.ones(len(rows), dtype=np.int64)
    whole = row_digests(RowBlock(names, rows, salts, id_salts, learned), OWNER)
    leaves = [(commitment(row), digest) for row, digest in enumerate(whole)]
    gone = {*erased, *missing}
    kept = [row for row in range(len(rows)) if row not in gone]
    before, after = retained_root(leaves), retained_root(leaves[row] for row in kept)
    ends = before, len(rows), after, len(kept)
    return RowsClaims(
        [
            BlockClaim(
                *OWNER,
                [names[row] for row in kept],
                stored,
                salts[kept],
                id_salts[kept],
                learned[kept],
            )
        ],
        ChainClaim(*ends, [RemovedLeaf(*leaves[row], 1) for row in sorted(gone)]),
        LinkClaim([(names[row], _salt(row), commitment(row)) for row in erased], [], [], *ends),
        ContentsClaim(0, [EMPTY.hex(), before.hex()], after.hex()),
    )


def _salt(row: int) -> bytes:
    return hashlib.sha256(f"record {row}".encode()).digest()


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
