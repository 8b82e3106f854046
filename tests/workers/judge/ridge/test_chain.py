"""The chain of an update's requests: true ones pass, and each planted violation is refuted."""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lethe.certificates.tree_oracle import oracle_root
from workers.judge.base import Judgement
from workers.judge.merkle import Tree, table
from workers.judge.ridge.chain import check_links, sets_of
from workers.judge.ridge.claim import ChainClaim, LinkClaim, RemovedLeaf
from workers.judge.ridge.reading import LeafSort, Leaves


def salt(row: int) -> bytes:
    return hashlib.sha256(b"salt %d" % row).digest()


def leaf(row: int) -> bytes:
    return hmac.digest(salt(row), b"r%d" % row, "sha256")


def content(row: int) -> bytes:
    return hashlib.sha256(b"content %d" % row).digest()


def root(rows: Sequence[int]) -> bytes:
    return oracle_root({leaf(row): content(row) for row in rows})


@dataclass(frozen=True, eq=False)
class Update:
    """Claims of an update; stored: the records whose rows are stored."""

    chain: ChainClaim
    links: list[LinkClaim]
    stored: list[int]


def update(
    stays: Sequence[int],
    requests: Sequence[Sequence[int]],
    dropped: Sequence[int] = (),
    added: Sequence[int] = (),
) -> Update:
    """An update that erased the named records, in this order, and dropped some others."""
    gone = [row for request in requests for row in request]
    grown = [*stays, *gone, *dropped]
    before = [row for row in grown if row not in added]
    links = []
    for place, request in enumerate(requests):
        earlier = [row for other in requests[:place] for row in other]
        later = [row for other in requests[place + 1 :] for row in other] + [*dropped]
        first = [row for row in grown if row not in earlier]
        last = [row for row in first if row not in request]
        links.append(
            LinkClaim(
                [(f"r{row}", salt(row), leaf(row)) for row in request],
                [leaf(row) for row in earlier],
                [leaf(row) for row in later],
                *(root(first), len(first), root(last), len(last)),
            )
        )
    removed = [RemovedLeaf(leaf(row), content(row), 1) for row in [*gone, *dropped]]
    ends = root(before), len(before), root(stays), len(stays)
    chain = ChainClaim(*ends, removed, [leaf(row) for row in added])
    return Update(chain, links, [*stays])


def judge(of: Update) -> list[Judgement]:
    known = Leaves(
        table([leaf(row) for row in of.stored]),
        table([content(row) for row in of.stored]),
        np.ones(len(of.stored), dtype=np.int64),
    )
    sets = cache(lambda: sets_of(of.chain, LeafSort(known)))
    return check_links(of.chain, of.links, sets, len(of.stored))


def values(of: Update) -> list[tuple[bool, str]]:
    return [(one.check.passed, one.check.value) for one in judge(of)]


TRUE = update(range(20), [[20, 21], [22], [23, 24, 25]], dropped=[26])


def test_each_request_of_a_true_chain_passes_with_its_own_numbers() -> None:
    assert values(TRUE) == [
        (True, "27 - 2 = 25 records"),
        (True, "25 - 1 = 24 records"),
        (True, "24 - 3 = 21 records"),
    ]
    # Some may have been judged before, and they need not come in the order of the chain.
    assert values(replace(TRUE, links=TRUE.links[::-1])) == values(TRUE)[::-1]
    assert values(replace(TRUE, links=TRUE.links[1:])) == values(TRUE)[1:]
    assert values(replace(TRUE, links=[TRUE.links[0], TRUE.links[2]])) == values(TRUE)[::2]


@st.composite
def updates(draw: st.DrawFn) -> Update:
    kinds = draw(st.lists(st.integers(0, 5), min_size=1, max_size=40))
    of = [[row for row, kind in enumerate(kinds) if kind == one] for one in range(6)]
    requests = [own for own in of[1:4] if own]
    every = [*of[0], *of[4], *(row for own in requests for row in own)]
    added = draw(st.sets(st.sampled_from(every))) if every else set()
    return update(of[0], requests, dropped=of[4], added=sorted(added))


@settings(max_examples=60, deadline=None)
@given(updates())
def test_random_true_chains_pass(of: Update) -> None:
    assert all(passed for passed, _ in values(of))


def link(place: int, **changes: Any) -> Update:
    links = [*TRUE.links]
    links[place] = replace(links[place], **changes)
    return replace(TRUE, links=links)


def whole(**changes: Any) -> Update:
    return replace(TRUE, chain=replace(TRUE.chain, **changes))


def hidden() -> Update:
    """The second request also removed another person's record without naming it."""
    honest = update(range(19), [[20, 21], [22, 19], [23, 24, 25]], dropped=[26])
    second = replace(honest.links[1], erased=honest.links[1].erased[:1])
    return replace(honest, links=[honest.links[0], second, honest.links[2]])


def hidden_from_all() -> Update:
    """As `hidden`, and no list of the update names the record."""
    honest = hidden()
    others = [
        replace(
            one,
            earlier=[leaf_ for leaf_ in one.earlier if leaf_ != leaf(19)],
            later=[leaf_ for leaf_ in one.later if leaf_ != leaf(19)],
        )
        for one in honest.links
    ]
    removed = [one for one in honest.chain.removed if one.commitment != leaf(19)]
    return Update(replace(honest.chain, removed=removed), others, honest.stored)


def of_somebody_else() -> Update:
    """The second request claims the first's records as its own."""
    return link(1, erased=TRUE.links[0].erased)


def of_somebody_else_with_roots() -> Update:
    first = TRUE.links[0]
    return replace(TRUE, links=[first, first, TRUE.links[2]])


def left_out() -> Update:
    """The third request starts where the second did, as if that had never happened."""
    skipping = update(range(20), [[20, 21], [23, 24, 25], [22]], dropped=[26])
    return replace(TRUE, links=[*TRUE.links[:2], skipping.links[1]])


PLANTED: dict[str, tuple[Callable[[], Update], list[int], str]] = {
    "a link hides a record": (hidden, [1], "other records than the chain"),
    "the update hides a record": (hidden_from_all, [0, 1, 2], "count"),
    "the records of another request": (of_somebody_else, [1], "twice in one update"),
    "another request's link": (of_somebody_else_with_roots, [1], "a step of the chain"),
    "a step is left out": (left_out, [2], "a step of the chain is left out"),
    "it begins a step too early": (
        lambda: link(1, before_root=TRUE.links[0].before_root),
        [1],
        "root of before",
    ),
    "it ends a step too late": (
        lambda: link(0, after_root=TRUE.links[1].after_root),
        [0],
        "root of after",
    ),
    "it counts one less": (lambda: link(2, after_count=20), [2], "count"),
    "a record under another's name": (
        lambda: link(1, erased=[("r23", salt(23), leaf(22))]),
        [1],
        "not the one of its commitment",
    ),
    "a short salt": (
        lambda: link(1, erased=[("r22", b"", hmac.digest(b"", b"r22", "sha256"))]),
        [1],
        "not the one of its commitment",
    ),
    "one record under two salts": (
        lambda: link(0, erased=[TRUE.links[0].erased[0], ("r20", salt(21), leaf(21))]),
        [0],
        "named twice",
    ),
    "an earlier one is not named": (lambda: link(1, earlier=[leaf(20)]), [1], "other records"),
    "one that stays is named": (
        lambda: link(1, later=[*TRUE.links[1].later, leaf(3)]),
        [1],
        "other records",
    ),
    "an odd link": (lambda: link(1, earlier=None), [1], "cannot be evaluated: TypeError"),
    "a row too few": (
        lambda: replace(TRUE, stored=TRUE.stored[1:]),
        [0, 1, 2],
        "19 rows are stored for 20 retained records",
    ),
    "an erased row is stored": (
        lambda: replace(TRUE, stored=[*TRUE.stored[1:], 22]),
        [0, 1, 2],
        "an erased record is still stored",
    ),
    "a row is stored twice": (
        lambda: replace(TRUE, stored=[*TRUE.stored[1:], 5]),
        [0, 1, 2],
        "two stored rows are of one record",
    ),
    "another row is stored": (
        lambda: replace(TRUE, stored=[*TRUE.stored[1:], 99]),
        [0, 1, 2],
        "does not begin at",
    ),
    "erased twice": (
        lambda: whole(removed=[*TRUE.chain.removed, TRUE.chain.removed[0]]),
        [0, 1, 2],
        "twice in one update",
    ),
    "an odd commitment went": (
        lambda: whole(removed=[*TRUE.chain.removed, RemovedLeaf(b"short", bytes(32), 1)]),
        [0, 1, 2],
        "not 32 bytes",
    ),
    "it had another content": (
        lambda: whole(removed=[replace(one, content=bytes(32)) for one in TRUE.chain.removed]),
        [0, 1, 2],
        "does not begin at",
    ),
    "another version before": (lambda: whole(before_root=bytes(32)), [0, 1, 2], "begin at"),
    "another version after": (lambda: whole(after_root=bytes(32)), [0, 1, 2], "end at"),
    "a larger version before": (lambda: whole(before_count=28), [0, 1, 2], "a count of"),
    "nothing was removed": (lambda: whole(removed=[]), [0, 1, 2], "a count of"),
    "an unknown record was added": (
        lambda: whole(added=[leaf(99)], before_count=26),
        [0, 1, 2],
        "not in the set that it grew to",
    ),
    "a record was added twice": (
        lambda: whole(added=[leaf(3)] * 2, before_count=25),
        [0, 1, 2],
        "added a record twice",
    ),
    "one that was there was added": (
        lambda: whole(added=[leaf(3)], before_count=26),
        [0, 1, 2],
        "does not begin at",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_violations_are_refuted(name: str) -> None:
    make, places, reason = PLANTED[name]
    found = values(make())
    assert [place for place, (passed, _) in enumerate(found) if not passed] == places
    assert all(reason in found[place][1] for place in places), found


def test_each_link_costs_what_its_own_records_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """No link hashes the whole tree, or removes again what earlier links removed."""
    of = update(range(600), [[row] for row in range(600, 650)])
    asked: list[int] = []
    honest = Tree.without

    def without(self: Tree, subtree: Any, places: Sequence[int]) -> Any:
        if subtree is not None and subtree.high - subtree.low > 500:
            asked.append(len(places))
        return honest(self, subtree, places)

    monkeypatch.setattr(Tree, "without", without)
    assert all(passed for passed, _ in values(of))
    # The removed and the added once, then each link: nothing up to it, and its own record.
    assert sorted(asked) == [0] * 51 + [1] * 50 + [50]
