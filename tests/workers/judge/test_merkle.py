"""What is left of a tree without some leaves, against RFC 6962's recursive definition."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.judge import merkle
from workers.judge.merkle import Tree, merkle_root

# The eight reference leaves of Certificate Transparency's own tests, and their root.
LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657"]
LEAVES += ["606162636465666768696a6b6c6d6e6f"]
ROOT = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def mth(leaves: list[bytes]) -> bytes:
    """RFC 6962 section 2.1, as written."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\1" + mth(leaves[:split]) + mth(leaves[split:])).digest()


def test_the_known_answer() -> None:
    assert merkle_root([bytes.fromhex(leaf) for leaf in LEAVES]).hex() == ROOT


@pytest.mark.parametrize("size", [*range(20), 31, 32, 33, 100])
def test_equals_the_definition(size: int) -> None:
    leaves = [bytes([i]) * 32 for i in range(size)]
    assert merkle_root(leaves) == mth(leaves)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_what_is_left_equals_a_tree_of_its_own(
    size: int, first: set[int], second: set[int]
) -> None:
    leaves = [bytes([i]) * 32 for i in range(size)]
    tree = Tree(leaves)
    for gone in (first, second):  # of what is left, again
        tree = tree.without({bytes([i]) * 32 for i in gone})
        leaves = [leaf for leaf in leaves if leaf[0] not in gone]
        assert tree.leaves == leaves
        assert tree.root == mth(leaves)
    assert tree.without(()).root == tree.root


def test_only_subtrees_that_changed_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = [bytes([i]) * 32 for i in range(64)]
    tree, hashed = Tree(leaves), []

    class Counting:
        @staticmethod
        def sha256(data: bytes) -> object:
            hashed.append(data)
            return hashlib.sha256(data)

    monkeypatch.setattr(merkle, "hashlib", Counting)
    # Behind the one that went every pair is another, before it only those on its path.
    assert tree.without({leaves[40]}).root == mth(leaves[:40] + leaves[41:])
    assert all(data[:1] == b"\1" for data in hashed)
    assert len(hashed) == 11 + 6 + 3 + 2 + 1 + 1
    hashed.clear()
    # Two that went move what is behind them by a whole pair: its pairs are known.
    assert tree.without({leaves[0], leaves[1]}).root == mth(leaves[2:])
    assert len(hashed) == 15 + 8 + 4 + 2 + 1
