"""The judge's tree of a set, and what is left of it, against the definition."""

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lethe.certificates.tree_oracle import bare_root, oracle_root
from tests.lethe.log.vectors import ROOT, read_cases
from workers.judge import merkle
from workers.judge.merkle import Tree, merkle_root

VECTORS = ROOT / "tests" / "vectors" / "retained-set" / "roots"
WORD = st.binary(min_size=32, max_size=32)
NEAR = st.lists(st.sampled_from([0, 1, 128, 255]), min_size=32, max_size=32).map(bytes)
SETS = st.dictionaries(st.one_of(WORD, NEAR), WORD, max_size=30)


def bare(leaves: list[bytes]) -> Tree:
    return Tree(leaves, [bytes(32)] * len(leaves))


@pytest.mark.parametrize("case", read_cases(VECTORS), ids=lambda case: case["name"])
def test_the_published_roots(case: dict[str, Any]) -> None:
    leaves = sorted((bytes.fromhex(one), bytes.fromhex(two)) for one, two in case["leaves"])
    tree = Tree([one for one, _ in leaves], [two for _, two in leaves])
    assert tree.root.hex() == case["root"]


@settings(max_examples=60, deadline=None)
@given(SETS, st.data())
def test_what_is_left_is_a_tree_of_its_own(
    leaves: dict[bytes, bytes], data: st.DataObject
) -> None:
    tree = Tree(sorted(leaves), [leaves[one] for one in sorted(leaves)])
    assert tree.root == oracle_root(leaves)
    assert merkle_root(sorted(leaves)) == bare_root(list(leaves))
    for _ in range(3):  # each time of the same tree
        gone = data.draw(st.sets(st.sampled_from(sorted(leaves)))) if leaves else set()
        left = {one: content for one, content in leaves.items() if one not in gone}
        assert tree.root_without(gone) == oracle_root(left)
    assert tree.root_without(()) == tree.root
    assert tree.root_without(leaves) == oracle_root({})


@pytest.mark.parametrize("leaves", [[], [b"\x01" * 32], [b"\x01" * 32, b"\x03" * 32]])
@pytest.mark.parametrize("other", [bytes(32), b"\x02" * 32, b"\xff" * 32])
def test_only_its_own_leaves_can_be_left_out(leaves: list[bytes], other: bytes) -> None:
    with pytest.raises(ValueError, match="not in the set"):
        bare(leaves).root_without([*leaves[:1], other])


def test_leaves_and_contents_are_as_many() -> None:
    with pytest.raises(ValueError, match="zip"):
        Tree([bytes(32), b"\x01" * 32], [bytes(32)])


def test_only_nodes_above_what_went_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = [bytes([i]) * 32 for i in range(64)]  # complete: six nodes above each leaf
    tree, hashed = bare(leaves), []

    class Counting:
        @staticmethod
        def sha256(data: bytes) -> object:
            hashed.append(data)
            return hashlib.sha256(data)

    monkeypatch.setattr(merkle, "hashlib", Counting)
    assert tree.root_without({leaves[40]}) == bare_root(leaves[:40] + leaves[41:])
    assert all(data[:1] == b"\1" for data in hashed)
    assert len(hashed) == 5  # its parent gave way to the leaf beside it
    hashed.clear()
    assert tree.root_without({leaves[0], leaves[1]}) == bare_root(leaves[2:])
    assert len(hashed) == 4
