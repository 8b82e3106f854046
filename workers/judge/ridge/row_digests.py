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

import numpy as np

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.checks import check_digests, guarded, judged
from workers.judge.merkle import root_of
from workers.judge.ridge.chain import Sets
from workers.judge.ridge.claim import ContentsClaim
from workers.judge.ridge.room import FURTHER, Judging

BEFORE, AFTER = CHECKS["rows-before"], CHECKS["rows-after"]
UNPUBLISHED = "a version was published without the root of its retained set"


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
