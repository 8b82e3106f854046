"""A tree whose parts are stored elsewhere: the same tree, and nothing of it is believed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.certificates.errors import RemovalError
from lethe.certificates.retained_tree import (
    Leaf,
    Part,
    RetainedTree,
    divided,
    follow,
    joined,
)
from tests.fuzz import fuzz
from tests.lethe.certificates.tree_oracle import oracle_root

CAP = 3
Pages = dict[bytes, list[Part]]
WORD = st.binary(min_size=32, max_size=32)
# Of few first bytes, so that sets of this size are divided twice and thrice.
NEAR = st.tuples(
    st.lists(st.sampled_from([0, 1, 255]), min_size=3, max_size=3),
    st.binary(min_size=29, max_size=29),
).map(lambda pair: bytes(pair[0]) + pair[1])
SETS = st.dictionaries(NEAR, WORD, max_size=40)


class Store:
    """What is stored of a set, and what was read of it."""

    def __init__(self, leaves: dict[bytes, bytes]) -> None:
        self.leaves = dict(leaves)
        self.whole, self.pages = divided(sorted(leaves.items()), CAP)
        self.read: list[bytes] = []

    def load(self, prefix: bytes) -> Sequence[Leaf] | Sequence[Part]:
        self.read.append(prefix)
        if prefix in self.pages:
            return self.pages[prefix]
        return sorted(leaf for leaf in self.leaves.items() if leaf[0].startswith(prefix))

    def tree(self) -> RetainedTree:
        return RetainedTree.stored(self.whole.hash, self.whole.count, self.load)

    def save(self, tree: RetainedTree, leaves: dict[bytes, bytes]) -> None:
        for prefix, parts in tree.divided(CAP).items():
            self.pages.pop(prefix, None)
            if parts is not None:
                self.pages[prefix] = parts
        self.leaves, self.whole = dict(leaves), Part(b"", tree.count, tree.root)


@fuzz(100)
@given(SETS)
def test_a_set_is_divided_where_it_is_large(leaves: dict[bytes, bytes]) -> None:
    whole, pages = divided(sorted(leaves.items()), CAP)
    assert whole == Part(b"", len(leaves), oracle_root(leaves))
    by_prefix = {one[:size]: size for one in leaves for size in range(4)}
    expected: Pages = {}
    for prefix in by_prefix:
        own = [one for one in leaves if one.startswith(prefix)]
        if len(own) > CAP:
            longer = sorted({one[: len(prefix) + 1] for one in own})
            below = {p: {o: leaves[o] for o in own if o.startswith(p)} for p in longer}
            expected[prefix] = [Part(p, len(own), oracle_root(own)) for p, own in below.items()]
    assert {prefix: pages[prefix] for prefix in pages if len(prefix) < 4} == expected


@fuzz(100)
@given(SETS, st.data())
def test_every_history_leaves_what_is_stored_of_the_set(
    leaves: dict[bytes, bytes], data: st.DataObject
) -> None:
    store, known = Store(leaves), dict(leaves)
    for size in data.draw(st.lists(st.integers(0, 12), max_size=4)):
        tree = store.tree()
        for _ in range(size):
            commitment = data.draw(st.one_of(NEAR, st.sampled_from([*known, bytes(32)])))
            if commitment in known:
                before = tree.root, tree.count
                path = tree.remove(commitment)
                assert path.content == known.pop(commitment)
                assert follow(commitment, path) == (before, (tree.root, tree.count))
            else:
                known[commitment] = content = data.draw(WORD)
                tree.add(commitment, content)
        store.save(tree, known)
        assert (store.whole, store.pages) == divided(sorted(known.items()), CAP)
        assert store.whole.hash == oracle_root(known)


LEAVES = {
    sha256(bytes([i, j])).digest(): sha256(bytes([j, i])).digest()
    for i in range(40)
    for j in range(100)
}
# One that has another beside it in the smallest part.
ORDER = sorted(LEAVES)
CHOSEN = next(one for one, other in pairwise(ORDER[1700:]) if one[:2] == other[:2])


def test_a_removal_loads_only_what_lies_above_it() -> None:
    store = Store(LEAVES)
    tree = store.tree()
    path = tree.remove(CHOSEN)
    assert follow(CHOSEN, path)[0] == (oracle_root(LEAVES), len(LEAVES))
    assert store.read == [CHOSEN[:size] for size in range(len(store.read))]
    assert len(store.read) <= 3
    assert set(tree.divided(CAP)) <= set(store.read)
    rest = {one: content for one, content in LEAVES.items() if one != CHOSEN}
    assert tree.root == oracle_root(rest)


def hash_changed(store: Store, prefix: bytes) -> None:
    pages = store.pages[prefix]
    pages[0] = replace(pages[0], hash=bytes(32))


def count_changed(store: Store, prefix: bytes) -> None:
    pages = store.pages[prefix]
    pages[0] = replace(pages[0], count=pages[0].count + 1)


def counts_moved(store: Store, prefix: bytes) -> None:
    # To the part beside: their sum, which the node above covers, is as it was.
    pages = store.pages[prefix]
    place = [CHOSEN.startswith(part.prefix) for part in pages].index(True)
    beside = place ^ 1 if place ^ 1 < len(pages) else place - 1
    pages[place] = replace(pages[place], count=pages[place].count + 1)
    pages[beside] = replace(pages[beside], count=pages[beside].count - 1)


def part_missing(store: Store, prefix: bytes) -> None:
    del store.pages[prefix][0]


def part_added(store: Store, prefix: bytes) -> None:
    store.pages[prefix].append(Part(prefix + b"\xff", 1, bytes(32)))


def no_parts(store: Store, prefix: bytes) -> None:
    store.pages[prefix] = []


def parts_swapped(store: Store, prefix: bytes) -> None:
    pages = store.pages[prefix]
    pages[0], pages[1] = pages[1], pages[0]


def prefix_changed(store: Store, prefix: bytes) -> None:
    # The next byte of the chosen leaf's part: the tree above has the same root.
    place = [CHOSEN.startswith(part.prefix) for part in store.pages[prefix]].index(True)
    other = bytes([CHOSEN[len(prefix)] ^ 1])
    store.pages[prefix][place] = replace(store.pages[prefix][place], prefix=prefix + other)


def leaf_missing(store: Store, prefix: bytes) -> None:
    del store.leaves[near(store)]


def leaf_added(store: Store, prefix: bytes) -> None:
    store.leaves[CHOSEN[:31] + bytes([CHOSEN[31] ^ 1])] = bytes(32)


def leaf_exchanged(store: Store, prefix: bytes) -> None:
    store.leaves[near(store)] = bytes(32)


def near(store: Store) -> bytes:
    """Another leaf of the smallest part of the chosen one."""
    size = max(size for size in range(4) if CHOSEN[:size] in store.pages) + 1
    return next(one for one in LEAVES if one[:size] == CHOSEN[:size] and one != CHOSEN)


REFUSED = "not what its root says|must ascend"
PLANTED: dict[str, Callable[[Store, bytes], None]] = {
    "hash changed": hash_changed,
    "count changed": count_changed,
    "counts moved": counts_moved,
    "part missing": part_missing,
    "part added": part_added,
    "no parts": no_parts,
    "parts swapped": parts_swapped,
    "prefix changed": prefix_changed,
    "leaf missing": leaf_missing,
    "leaf added": leaf_added,
    "leaf exchanged": leaf_exchanged,
}


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_not_of_the_set_is_refused(name: str, depth: int) -> None:
    store = Store(LEAVES)
    assert CHOSEN[:1] in store.pages
    PLANTED[name](store, CHOSEN[:depth])
    with pytest.raises(RemovalError, match=REFUSED):
        store.tree().remove(CHOSEN)
    fresh = CHOSEN[:4] + bytes(28)
    with pytest.raises(RemovalError, match=REFUSED):
        store.tree().add(fresh, bytes(32))


@pytest.mark.parametrize("count", [0, 1, len(LEAVES) - 1, len(LEAVES) + 1])
def test_another_count_of_the_root_is_refused(count: int) -> None:
    store = Store(LEAVES)
    with pytest.raises(RemovalError, match="not what its root says"):
        RetainedTree.stored(store.whole.hash, count, store.load).remove(CHOSEN)


def test_parts_are_of_their_prefix_and_ascend() -> None:
    _, pages = divided(sorted(LEAVES.items()), CAP)
    parts = pages[b""]
    assert joined(b"", parts) == Part(b"", len(LEAVES), oracle_root(LEAVES))
    for wrong in (parts[::-1], [], [replace(parts[0], count=0)], pages[CHOSEN[:1]]):
        with pytest.raises(RemovalError):
            joined(b"", wrong)
