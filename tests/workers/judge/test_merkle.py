"""The judge's tree of a set, and of its remainder, against the definition."""

import hashlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lethe.certificates.tree_oracle import bare_root, oracle_root
from tests.lethe.log.vectors import ROOT, read_cases
from workers.judge import merkle
from workers.judge.merkle import CHUNK, SMALL, Tree, merkle_root, root_of, table

VECTORS = ROOT / "tests" / "vectors" / "retained-set" / "roots"
WORD = st.binary(min_size=32, max_size=32)
NEAR = st.lists(st.sampled_from([0, 1, 128, 255]), min_size=32, max_size=32).map(bytes)
SETS = st.dictionaries(st.one_of(WORD, NEAR), WORD, max_size=30)


def bare(leaves: list[bytes]) -> Tree:
    return Tree(table(leaves), table([bytes(32)] * len(leaves)))


def root(tree: Tree) -> bytes:
    return root_of(tree.whole)


@pytest.mark.parametrize("case", read_cases(VECTORS), ids=lambda case: case["name"])
def test_the_published_roots(case: dict[str, Any]) -> None:
    leaves = sorted((bytes.fromhex(one), bytes.fromhex(two)) for one, two in case["leaves"])
    tree = Tree(table([one for one, _ in leaves]), table([two for _, two in leaves]))
    assert root(tree).hex() == case["root"]


@settings(max_examples=60, deadline=None)
@given(SETS, st.data())
def test_what_is_left_is_a_tree_of_its_own(
    leaves: dict[bytes, bytes], data: st.DataObject
) -> None:
    tree = made(leaves)
    assert root(tree) == oracle_root(leaves)
    assert merkle_root(sorted(leaves)) == bare_root(list(leaves))
    for _ in range(3):  # each time of the same tree
        gone = data.draw(st.sets(st.sampled_from(sorted(leaves)))) if leaves else set()
        left = {one: content for one, content in leaves.items() if one not in gone}
        assert tree.root_without(gone) == oracle_root(left)
    assert tree.root_without(()) == root(tree)
    assert tree.root_without(leaves) == oracle_root({})


def made(leaves: dict[bytes, bytes]) -> Tree:
    ordered = sorted(leaves)
    return Tree(table(ordered), table([leaves[one] for one in ordered]))


def word(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(4)).digest()


@pytest.mark.parametrize("count", [SMALL, SMALL + 1, 700, CHUNK - 1, CHUNK, CHUNK + 1])
def test_sets_that_shrink_step_by_step(count: int) -> None:
    """Each step starts from the previous remainder, down to nothing for small sets."""
    leaves = {word(number): word(number + 2**20) for number in range(count)}
    tree, rng = made(leaves), random.Random(count)
    assert root(tree) == oracle_root(leaves)
    left, subtree = dict(leaves), tree.whole
    for _ in range(40 if count > 2 * SMALL else count):
        gone = rng.sample(sorted(left), min(len(left), rng.choice([1, 1, 2, 9])))
        subtree = tree.without(subtree, tree.places(gone))
        left = {one: leaf for one, leaf in left.items() if one not in gone}
        assert root_of(subtree) == oracle_root(left)
        assert (subtree.count if subtree else 0) == len(left)
        if subtree:
            with pytest.raises(ValueError, match="not in the set"):
                tree.without(subtree, tree.places(gone[:1]))
    with pytest.raises(ValueError, match="not in the set"):
        tree.without(None, [0])


@pytest.mark.parametrize("place", [0, 5, CHUNK - 1, CHUNK])
@pytest.mark.parametrize("apart", [0, 1])
def test_leaves_that_do_not_ascend_are_no_tree(place: int, apart: int) -> None:
    leaves = sorted(word(number) for number in range(CHUNK + 2))
    first, second = leaves[place : place + 2]
    leaves[place : place + 2] = (second, first) if apart else (first, first)
    with pytest.raises(ValueError, match="not sorted without duplicates"):
        bare(leaves)


@pytest.mark.parametrize("leaves", [[], [b"\x01" * 32], [b"\x01" * 32, b"\x03" * 32]])
@pytest.mark.parametrize("other", [bytes(32), b"\x02" * 32, b"\xff" * 32])
def test_only_its_own_leaves_can_be_left_out(leaves: list[bytes], other: bytes) -> None:
    with pytest.raises(ValueError, match="not in the set"):
        bare(leaves).root_without([*leaves[:1], other])


def test_leaves_and_contents_are_as_many() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Tree(table([bytes(32), b"\x01" * 32]), table([bytes(32)]))


@pytest.mark.parametrize("odd", [b"", bytes(31), bytes(33), "0" * 32, None])
def test_another_length_is_no_commitment(odd: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        table([bytes(32), odd])


def test_only_what_is_near_a_leaf_that_went_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2**14
    leaves = sorted(word(number) for number in range(count))
    tree, hashed = bare(leaves), [0]

    def counting(data: bytes) -> object:
        hashed[0] += 1
        return hashlib.sha256(data)

    monkeypatch.setattr(merkle, "sha256", counting)
    left = tree.without(tree.whole, [4000])
    assert hashed[0] < 2 * SMALL + 20  # its small subtree, and the nodes above
    monkeypatch.undo()
    assert root_of(left) == bare_root(leaves[:4000] + leaves[4001:])
