"""Checks of contents: none moved from a row that went to one that stays.

Whoever stores an erased row under the id of somebody else, and drops that person's, agrees
with all checks of ids and sums. The leaf of a record in the retained set has the salted digest
of its row, so the root of each version, which the log has, commits to ids and contents
together. The digests are recomputed from the rows that check 1 sums, and lead to the root of
the version published (`rows-after`) and, with the leaves that went, to the root of the version
before (`rows-before`): were one byte of a stored row another then, the root would differ.

Contributions are not judged one by one. So the root of every version since the last erasure or
refit is recomputed, each from the rows that had come by then.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from lethe.catalogue import CHECKS
from workers.arrays import Rows
from workers.judge.base import Judgement
from workers.judge.checks import guarded, judged
from workers.judge.digests import check_digests
from workers.judge.retention import Trees
from workers.judge.ridge.claim import BlockClaim, RowsClaim
from workers.judge.ridge.room import FURTHER, Judging

BEFORE, AFTER = CHECKS["rows-before"], CHECKS["rows-after"]
UNPUBLISHED = "a version was published without the root of its retained set"
CHUNK = 512  # rows written out at a time: less than a megabyte, which stays in cache


class Contents(NamedTuple):
    """What stored and removed rows come to.

    learned: the version that each leaf came with, by its commitment. without: gives the root
    of all leaves without some.
    """

    learned: dict[bytes, int]
    without: Callable[[Collection[bytes]], bytes]


@FURTHER.check("rows-before")
def check_contents(judging: Judging) -> list[Judgement]:
    """Judge `rows-before` and `rows-after` where the rows are here."""
    claim = judging.claim
    if claim.contents is None:
        return []
    return check_rows(claim.contents, claim.rows, judging.trees)


def check_rows(claim: RowsClaim, rows: Sequence[Rows], trees: Trees) -> list[Judgement]:
    """Judge both; rows: the retained rows, block by block."""

    @cache  # both read all rows
    def found() -> Contents:
        return _contents(claim, rows, trees)

    return [
        guarded(BEFORE, lambda: _check_before(claim, found())),
        guarded(AFTER, lambda: _check_after(claim, found())),
    ]


def _contents(claim: RowsClaim, rows: Sequence[Rows], trees: Trees) -> Contents:
    """Return what the rows come to. Raises ValueError for a row that is not one record's."""
    leaves = stored(claim.blocks, rows) + list(claim.gone)
    contents = {commitment: content for commitment, content, _ in leaves}
    if len(contents) != len(leaves) or any(len(leaf) != 32 for leaf in contents):
        raise ValueError("a row without a record of its own")
    learned = {commitment: version for commitment, _, version in leaves}
    return Contents(learned, trees.of(sorted(contents), contents))


def stored(
    blocks: Sequence[BlockClaim], rows: Sequence[Rows]
) -> list[tuple[bytes, bytes, int]]:
    """Return commitment, digest and version of each stored row.

    Raises ValueError for one without a record, a salt or a version.
    """
    found: list[tuple[bytes, bytes, int]] = []
    for block, part in zip(blocks, rows, strict=True):
        count = len(part)
        if block.salts.shape != (count, 32) or block.learned.shape != (count,):
            raise ValueError("a row without a salt or a version")
        if not len(block.records) == len(block.commitments) == count:
            raise ValueError("a row without a record")
        found += zip(
            block.commitments, _digests(block, part), block.learned.tolist(), strict=True
        )
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


def _check_before(claim: RowsClaim, found: Contents) -> Judgement:
    known = [root for root in claim.before if root is not None]
    if not known or len(known) < len(claim.before):
        return judged(BEFORE, UNPUBLISHED, passed=False, undecided=True)
    last = claim.since + len(known) - 1
    if any(not 0 <= version <= last for version in found.learned.values()):
        value = "a row came with a version that is not among those before"
        return judged(BEFORE, value, passed=False)
    links = []
    for version, published in enumerate(known, claim.since):
        # What the last erasure left is one set, whenever its rows came.
        later = [leaf for leaf, came in found.learned.items() if came > version]
        links.append(check_digests(BEFORE, published, found.without(later).hex()))
    return next((one for one in links if not one.check.passed), links[-1])


def _check_after(claim: RowsClaim, found: Contents) -> Judgement:
    if claim.after is None:
        return judged(AFTER, UNPUBLISHED, passed=False, undecided=True)
    root = found.without([commitment for commitment, _, _ in claim.gone])
    return check_digests(AFTER, claim.after, root.hex())


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
