"""Check 3: between the versions before and after, exactly the erased records were removed.

The sets of an update are checked once, however many requests it served: the stored and the
removed records form one tree, which without the removed ones has the root of the version after,
and without those added by a round the root of the version before. Each request is then a link:
its own records are removed from the set that the earlier links left, and both roots must be the
published ones. That costs O(log n) per record, and needs no list of all commitments.

The links must form one chain, each from a set that reflects the earlier removals. If a step
were left out, two requests would start from the same set, but the log has one chain.
"""

import hmac
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.checks import (
    ODD_INPUT,
    CheckRoom,
    are_commitments,
    check_digests,
    guarded,
    judged,
)
from workers.judge.merkle import Digests, Subtree, Tree, root_of, table
from workers.judge.ridge.claim import ChainClaim, ContentsClaim, ExactClaim, LinkClaim
from workers.judge.ridge.reading import LeafSort, Leaves
from workers.judge.ridge.statistics import Recomputed

SPEC = CHECKS["retained-set"]


class ChainError(ValueError):
    """Sets that no update can have had. The message contains nothing of a claim."""


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """The tree of all records that were in the set at some time of the update.

    learned: of each of its leaves, in their order. removed: the positions of the removed
    leaves; after: the subtree without them.
    """

    tree: Tree
    learned: NDArray[np.int64]
    removed: dict[bytes, int]
    after: Subtree | None


def sets_of(claim: ChainClaim, stored: LeafSort) -> Sets:
    """Return the sets of an update. Raises ChainError if a record is in them twice.

    stored: consumed; it is left empty.
    """
    gone = [leaf.commitment for leaf in claim.removed]
    if not are_commitments(gone):
        raise ChainError("a commitment that the update removed is not 32 bytes")
    if len(set(gone)) != len(gone):
        raise ChainError("a record is erased twice in one update")
    stored.add(_leaves(claim))
    parts = list(stored.parts())
    for part in parts:
        _require_once(part.read(0, len(part))[0], gone)
    tree = Tree.of_parts(parts)
    places = tree.places(gone)
    return Sets(
        tree,
        np.concatenate([np.empty(0, np.int64), *(part.learned for part in parts)]),
        dict(zip(sorted(gone), places, strict=True)),
        tree.without(tree.whole, places),
    )


def _require_once(commitments: Digests, gone: Collection[bytes]) -> None:
    twice = np.flatnonzero((commitments[1:] == commitments[:-1]).all(axis=1))
    if len(twice):
        among = {commitments[place].tobytes() for place in twice}
        raise ChainError(
            "two stored rows are of one record"
            if among.isdisjoint(gone)
            else "an erased record is still stored"
        )


def _leaves(claim: ChainClaim) -> Leaves:
    return Leaves(
        table([leaf.commitment for leaf in claim.removed]),
        table([leaf.content for leaf in claim.removed]),
        np.array([leaf.learned for leaf in claim.removed], dtype=np.int64),
    )


def check_links(
    claim: ChainClaim, links: Sequence[LinkClaim], sets: Callable[[], Sets], rows: int
) -> list[Judgement]:
    """Judge the chain and each of its links: one judgement for each link, in their order.

    rows: the number of rows of the statistics.
    """
    whole = guarded(SPEC, lambda: _judge_chain(claim, sets, rows))
    if not whole.check.passed:
        return [whole] * len(links)
    chain = _Chain(sets())
    order = sorted(range(len(links)), key=lambda place: _position(links[place]))
    found = {place: guarded(SPEC, partial(chain.judge, links[place])) for place in order}
    return [found[place] for place in range(len(links))]


class _Chain:
    """The sets after each judged link, in the order of the chain."""

    def __init__(self, sets: Sets) -> None:
        self._sets = sets
        self._gone: frozenset[bytes] = frozenset()
        self._left = sets.tree.whole

    def judge(self, link: LinkClaim) -> Judgement:
        """Judge a link that starts where the last one ended, or after it."""
        problem = self._problem(link)
        value = f"{link.before_count} - {len(link.erased)} = {link.after_count} records"
        return judged(SPEC, problem or value, passed=problem is None)

    def _problem(self, link: LinkClaim) -> str | None:
        erased = [commitment for _, _, commitment in link.erased]
        every = [*link.earlier, *erased, *link.later]
        if not are_commitments(every):
            return "a commitment of the update is not 32 bytes"
        if not erased:
            return "no erased record is named"
        names = {record for record, _, _ in link.erased}
        if len(set(erased)) != len(erased) or len(names) != len(erased):
            return "an erased record is named twice"
        if not all(_opens(*one) for one in link.erased):
            return "an erased record is not the one of its commitment"
        if len(set(every)) != len(every):
            return "a record is erased twice in one update"
        if set(every) != self._sets.removed.keys():
            return "the update removed other records than the chain of its requests"
        earlier = frozenset(link.earlier)
        if not self._gone <= earlier:
            return "a step of the chain is left out"
        before = self._without(self._left, earlier - self._gone)
        if root_of(before) != link.before_root:
            return "the published root of before is wrong"
        after = self._without(before, erased)
        if root_of(after) != link.after_root:
            return "the published root of after is wrong"
        sizes = [0 if one is None else one.count for one in (before, after)]
        if sizes != [link.before_count, link.after_count]:
            return "a published count is wrong"
        self._gone, self._left = earlier.union(erased), after
        return None

    def _without(
        self, subtree: Subtree | None, gone: frozenset[bytes] | Sequence[bytes]
    ) -> Subtree | None:
        places = sorted(self._sets.removed[one] for one in gone)
        return self._sets.tree.without(subtree, places)


def _judge_chain(claim: ChainClaim, sets: Callable[[], Sets], rows: int) -> Judgement:
    try:
        problem = _problem(claim, sets(), rows)
    except ChainError as error:
        problem = str(error)
    return judged(SPEC, problem or "", passed=problem is None)


def _problem(claim: ChainClaim, sets: Sets, rows: int) -> str | None:
    tree, added = sets.tree, claim.added
    if rows != claim.after_count:
        return f"{rows} rows are stored for {claim.after_count} retained records"
    left = 0 if sets.after is None else sets.after.count
    if (len(tree) - len(added), left) != (claim.before_count, claim.after_count):
        return "a count of the versions before and after the update is wrong"
    if not are_commitments(added):
        return "a commitment that the round added is not 32 bytes"
    if len(set(added)) != len(added):
        return "the round added a record twice"
    try:
        places = tree.places(added)
    except ValueError:
        return "a record that the round added is not in the set that it grew to"
    if root_of(tree.without(tree.whole, places)) != claim.before_root:
        return "the chain does not begin at the version before"
    if root_of(sets.after) != claim.after_root:
        return "the chain does not end at the version after"
    return None


def _position(link: LinkClaim) -> int:
    """Return how many records were removed before a link; a malformed link comes first."""
    try:
        return len(link.earlier)
    except ODD_INPUT:
        return 0


def _opens(record: str, salt: bytes, commitment: bytes) -> bool:
    return len(salt) == 32 and hmac.digest(salt, record.encode(), "sha256") == commitment


@dataclass(frozen=True, slots=True, eq=False)
class Judging:
    """A claim, and the statistics that check 1 verified, None if it verified none.

    sets: returns the retained sets of the update, or raises as `chain.sets_of`.
    """

    claim: ExactClaim
    statistics: Recomputed | None
    sets: Callable[[], Sets]


# Judgements of one claim: none if it has nothing that the check applies to.
FURTHER: CheckRoom[Callable[[Judging], Sequence[Judgement]]] = CheckRoom("workers.judge.ridge")


# Checks of contents: no content was moved from a removed record to a retained one.
#
# If an erased row were stored under somebody else's id, in place of that person's row, all
# checks of ids and sums would pass. The leaf of a record in the retained set has the salted
# digest of its row, so the logged root of each version commits to ids and contents together.
# The digests are recomputed from the rows that check 1 sums, and lead to the root of the
# published version (`rows-after`) and, with the removed leaves, to the root of the version
# before (`rows-before`): a change in one byte of a stored row would change the root.
#
# Contributions are not judged one by one. So the root of every version since the last erasure
# or refit is recomputed, each from the rows learned until then.
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
