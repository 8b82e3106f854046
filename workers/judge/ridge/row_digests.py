"""Checks of contents: no content was moved from a removed record to a retained one.

If an erased row were stored under somebody else's id, in place of that person's row, all checks
of ids and sums would pass. The leaf of a record in the retained set has the salted digest of
its row, so the logged root of each version commits to ids and contents together. The digests
are recomputed from the rows that check 1 sums, and lead to the root of the published version
(`rows-after`) and, with the removed leaves, to the root of the version before (`rows-before`):
a change in one byte of a stored row would change the root.

Contributions are not judged one by one. So the root of every version since the last erasure or
refit is recomputed, each from the rows learned until then.
"""

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.checks import guarded, judged
from workers.judge.digests import check_digests
from workers.judge.merkle import Digests, root_of, table
from workers.judge.ridge.chain import Sets
from workers.judge.ridge.claim import BlockClaim, ContentsClaim
from workers.judge.ridge.leaves import Leaves
from workers.judge.ridge.room import FURTHER, Judging

BEFORE, AFTER = CHECKS["rows-before"], CHECKS["rows-after"]
UNPUBLISHED = "a version was published without the root of its retained set"
PAD = Struct("64s")
CHUNK = 512  # rows hashed at a time: less than a megabyte, which stays in cache


@FURTHER.check("rows-before")
def check_contents(judging: Judging) -> list[Judgement]:
    """Judge `rows-before` and `rows-after` if the rows are here."""
    claim = judging.claim.contents
    if claim is None:
        return []
    return [
        guarded(BEFORE, lambda: check_before(claim, judging.sets())),
        guarded(AFTER, lambda: check_after(claim, judging.sets())),
    ]


def leaves_of(block: BlockClaim) -> Leaves:
    """Return the leaves of stored rows. Raises ValueError for a row with missing parts."""
    count = len(block.rows)
    if {block.salts.shape, block.id_salts.shape} != {(count, 32)}:
        raise ValueError("a row without a salt")
    if block.learned.shape != (count,) or len(block.records) != count:
        raise ValueError("a row without a record or a version")
    records = [record.encode() for record in block.records]
    return Leaves(_commitments(block.id_salts, records), _digests(block), block.learned)


def _commitments(salts: NDArray[np.uint8], records: Sequence[bytes]) -> Digests:
    """Return HMAC-SHA256(salt, record) for each record (RFC 2104), vectorised for speed."""
    found = []
    for first in range(0, len(records), CHUNK):
        key = np.zeros((len(salts[first : first + CHUNK]), 64), np.uint8)
        key[:, :32] = salts[first : first + CHUNK]
        inner, outer = ((key ^ pad).tobytes() for pad in (0x36, 0x5C))
        found += [
            sha256(two + sha256(one + record).digest()).digest()
            for (one,), (two,), record in zip(
                PAD.iter_unpack(inner),
                PAD.iter_unpack(outer),
                records[first : first + CHUNK],
                strict=True,
            )
        ]
    return table(found)


def _digests(block: BlockClaim) -> Digests:
    """Return the digest of each row of a block; its leaf binds it to the commitment."""
    start = sha256(b"lethe/row/v2\0" + _hash(block.client) + _hash(block.subject))
    rows, found = block.rows, []
    for first in range(0, len(rows), CHUNK):
        part = slice(first, first + CHUNK)
        fields = (
            block.salts[part],
            rows.labels[part].astype("<i8").view(np.uint8).reshape(-1, 8),
            rows.codes[part].astype("<i2", order="C").view(np.uint8),
        )
        # In one buffer: a copy of each row would cost as much as its hash.
        for content in np.concatenate(fields, axis=1):
            row = start.copy()
            row.update(content)
            found.append(row.digest())
    return table(found)


def check_before(claim: ContentsClaim, sets: Sets) -> Judgement:
    """Judge the contents of the versions before the update."""
    known = [root for root in claim.before if root is not None]
    if not known or len(known) < len(claim.before):
        return judged(BEFORE, UNPUBLISHED, passed=False, undecided=True)
    last = claim.since + len(known) - 1
    if ((sets.learned < 0) | (sets.learned > last)).any():
        value = "a row came with a version that is not among those before"
        return judged(BEFORE, value, passed=False)
    links = []
    for version, published in enumerate(known, claim.since):
        # The rows left by the last erasure are one set, whatever version learned them.
        later = np.flatnonzero(sets.learned > version).tolist()
        root = root_of(sets.tree.without(sets.tree.whole, later))
        links.append(check_digests(BEFORE, published, root.hex()))
    return next((one for one in links if not one.check.passed), links[-1])


def check_after(claim: ContentsClaim, sets: Sets) -> Judgement:
    """Judge the contents of the published version."""
    if claim.after is None:
        return judged(AFTER, UNPUBLISHED, passed=False, undecided=True)
    return check_digests(AFTER, claim.after, root_of(sets.after).hex())


def _hash(text: str) -> bytes:
    return sha256(text.encode()).digest()
