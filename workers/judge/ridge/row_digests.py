"""Checks of contents: none moved from a row that went to one that stays.

The retained set commits to ids, so whoever stores an erased row under the id of somebody
else, and drops that person's, agrees with all other checks. The log has a digest of all rows
of each version. It is recomputed, from the rows that check 1 sums, for the version published
(`rows-after`) and, with the digests of those that went, for the version before
(`rows-before`): were one byte of a stored row another then, its digest would be neither
among those that stay nor among those that went.

Contributions are not judged one by one. So every version since the last erasure or refit is
recomputed, each as the rows of the one before and what came with it.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, pairwise

import numpy as np

from lethe.catalogue import CHECKS
from workers.arrays import Rows
from workers.judge.base import Judgement
from workers.judge.checks import guarded, judged
from workers.judge.digests import check_digests
from workers.judge.ridge.claim import BlockClaim, RowsClaim
from workers.judge.ridge.room import FURTHER, Judging

BEFORE, AFTER = CHECKS["rows-before"], CHECKS["rows-after"]
UNPUBLISHED = "a version was published without a digest of its rows"
CHUNK = 512  # rows written out at a time: less than a megabyte, which stays in cache
Contents = Mapping[int, list[bytes]]  # rows' digests by the version that they came with


@FURTHER.check("rows-before")
def check_contents(judging: Judging) -> list[Judgement]:
    """Judge `rows-before` and `rows-after` where the rows are here."""
    claim = judging.claim
    return [] if claim.contents is None else check_rows(claim.contents, claim.rows)


def check_rows(claim: RowsClaim, rows: Sequence[Rows]) -> list[Judgement]:
    """Judge both; rows: the retained rows, block by block."""

    @cache  # both read all rows
    def found() -> Contents:
        return stored(claim.blocks, rows)

    return [
        guarded(BEFORE, lambda: _check_before(claim, found())),
        guarded(AFTER, lambda: _check_after(claim, found())),
    ]


def stored(blocks: Sequence[BlockClaim], rows: Sequence[Rows]) -> Contents:
    """Return what the stored rows come to, sorted. Raises ValueError for one without a record.

    Sorted once: both digests are of sorted lists, and to merge sorted ones costs little.
    """
    found: dict[int, list[bytes]] = defaultdict(list)
    for block, part in zip(blocks, rows, strict=True):
        count = len(part)
        if block.salts.shape != (count, 32) or block.learned.shape != (count,):
            raise ValueError("a row without a salt or a version")
        if len(block.records) != count:
            raise ValueError("a row without a record")
        digests, versions = _digests(block, part), block.learned.tolist()
        # A block's rows lie in the order in which they came: a few runs of one version each.
        turns = np.flatnonzero(np.diff(block.learned)) + 1
        for start, end in pairwise(sorted({0, *turns.tolist(), count})):
            found[versions[start]] += digests[start:end]
    for own in found.values():
        own.sort()
    return found


def _digests(block: BlockClaim, rows: Rows) -> list[bytes]:
    """Return the digest of each row of a block."""
    start = hashlib.sha256(b"lethe/row/v1\0" + _hash(block.client) + _hash(block.subject))
    found = []
    for first in range(0, len(rows), CHUNK):
        part = slice(first, first + CHUNK)
        records = b"".join(map(_hash, block.records[part]))
        fields = (
            np.frombuffer(records, np.uint8).reshape(-1, 32),
            block.salts[part],
            rows.labels[part].astype("<i8").view(np.uint8).reshape(-1, 8),
            rows.codes[part].astype("<i2", order="C").view(np.uint8),
        )
        # In one buffer: a copy of each row would cost as much as its hash.
        for content in np.concatenate(fields, axis=1):
            row = start.copy()
            row.update(content)
            found.append(row.digest())
    return found


def digest_of(digests: Sequence[bytes]) -> str:
    """Return the hex digest of a set of rows by theirs, in any order."""
    return hashlib.sha256(b"lethe/rows/v1\0" + b"".join(sorted(digests))).hexdigest()


def grown(before: str, added: str) -> str:
    """Return the hex digest of the rows of a version with those of a contribution."""
    parts = b"lethe/grown/v1\0", bytes.fromhex(before), bytes.fromhex(added)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _check_before(claim: RowsClaim, found: Contents) -> Judgement:
    came: dict[int, list[bytes]] = defaultdict(list)
    gone = [(learned, [bytes.fromhex(digest)]) for digest, learned in claim.gone]
    for learned, digests in [*found.items(), *gone]:
        # What the last erasure left is one set, whenever it came.
        came[max(learned, claim.since)] += digests
    known = [digest for digest in claim.before if digest is not None]
    if not known or len(known) < len(claim.before):
        return judged(BEFORE, UNPUBLISHED, passed=False, undecided=True)
    digest = digest_of(came.pop(claim.since, []))
    links = [check_digests(BEFORE, known[0], digest)]
    for version, published in enumerate(known[1:], claim.since + 1):
        digest = grown(digest, digest_of(came.pop(version, [])))
        links.append(check_digests(BEFORE, published, digest))
    if came:
        value = "a row came with a version that is not among those before"
        return judged(BEFORE, value, passed=False)
    return next((one for one in links if not one.check.passed), links[-1])


def _check_after(claim: RowsClaim, found: Contents) -> Judgement:
    if claim.after is None:
        return judged(AFTER, UNPUBLISHED, passed=False, undecided=True)
    return check_digests(AFTER, claim.after, digest_of([*chain(*found.values())]))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
