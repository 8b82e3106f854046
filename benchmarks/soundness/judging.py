"""What each trial shares: commitments, digests, purge probes, and a verdict that is counted."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from benchmarks.soundness.providers import is_honest
from benchmarks.soundness.rates import VERDICTS, Tally
from workers.arrays import Rows
from workers.families.ridge.blocks import SALT, RowBlock
from workers.families.ridge.rows import row_digests
from workers.judge.base import Probe, PurgeClaim, Report, RetainedSetClaim
from workers.judge.merkle import EMPTY, NO_CONTENT, Tree
from workers.judge.ridge.claim import BlockClaim, RowsClaim

OWNER = ("client", "subject")


def commitment(row: int) -> bytes:
    """Return the 32 bytes that stand for a record in the retained set."""
    return hashlib.sha256(f"record {row}".encode()).digest()


def retained_set(
    rows: int,
    erased: Collection[int],
    missing: Collection[int] = (),
    contents: Mapping[bytes, bytes] = MappingProxyType({}),
) -> RetainedSetClaim:
    """Return the sets of an erasure of `erased` of records 0 … rows - 1.

    missing: records that the provider left out of the later set, too, with a root and a
    count that fit. contents: of the leaves, where rows are stored.
    """
    gone = {*erased, *missing}
    before = sorted(commitment(row) for row in range(rows))
    after = sorted(commitment(row) for row in range(rows) if row not in gone)
    return RetainedSetClaim(
        before,
        after,
        [commitment(row) for row in erased],
        _root(before, contents),
        len(before),
        _root(after, contents),
        len(after),
        contents=contents,
    )


def _root(leaves: Sequence[bytes], contents: Mapping[bytes, bytes]) -> bytes:
    return Tree(leaves, [contents.get(leaf, NO_CONTENT) for leaf in leaves]).root


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
) -> tuple[RowsClaim, dict[bytes, bytes]]:
    """Return the claim that `stored` is what an erasure left of one contribution's rows.

    With it come the contents of all leaves as the version before has them. missing: as in
    `retained_set`.
    """
    names = [str(row) for row in range(len(rows))]
    salts = hashlib.shake_256(b"salts").digest(SALT * len(rows))
    marks = (
        np.frombuffer(salts, dtype=np.uint8).reshape(-1, SALT),
        np.ones(len(rows), dtype=np.int64),
    )
    whole = row_digests(RowBlock(names, rows, *marks), OWNER)
    leaves = {commitment(row): digest for row, digest in enumerate(whole)}
    gone = {*erased, *missing}
    kept = np.array([row not in gone for row in range(len(rows))])
    stays = [row for row in range(len(rows)) if row not in gone]
    left = RowBlock([names[row] for row in stays], stored, *(mark[kept] for mark in marks))
    places = [commitment(row) for row in stays]
    block = BlockClaim(*OWNER, left.records, left.salts, left.learned, places)
    claim = RowsClaim(
        [block],
        [(commitment(row), whole[row], 1) for row in sorted(gone)],
        since=0,
        before=[EMPTY.hex(), _root(sorted(leaves), leaves).hex()],
        after=_root(sorted(places), leaves).hex(),
    )
    return claim, leaves


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
