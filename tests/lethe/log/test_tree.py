"""Roots and stored nodes against the recursive definition, and against known answers."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.log.tree import (
    EMPTY_ROOT,
    MAX_SIZE,
    Peaks,
    leaf_hash,
    node_hash,
    range_root,
    root_of,
    tree_root,
)
from tests.lethe.log import oracle
from tests.lethe.log.vectors import foreign

REFERENCE_LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
REFERENCE_ROOT = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def test_eight_reference_leaves_have_the_published_root() -> None:
    hashes = [leaf_hash(leaf) for leaf in REFERENCE_LEAVES]
    assert root_of(hashes).hex() == REFERENCE_ROOT
    assert tree_root(8, oracle.StrictReader(REFERENCE_LEAVES)).hex() == REFERENCE_ROOT


def test_empty_tree_is_sha256_of_nothing() -> None:
    expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert EMPTY_ROOT.hex() == root_of([]).hex() == expected
    assert tree_root(0, oracle.StrictReader([])).hex() == expected


def test_a_leaf_is_never_a_node() -> None:
    # Without the prefixes an inner node could be claimed as an entry (second preimage).
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert leaf_hash(left + right) != node_hash(left, right)


def test_reference_roots_of_others() -> None:
    directory = foreign()
    if directory is None:
        pytest.skip("no third-party vectors at hand")
    vectors = json.loads((directory / "rfc6962-roots.json").read_text())
    hashes = [leaf_hash(bytes.fromhex(leaf)) for leaf in vectors["leaves"]]
    roots = [root_of(hashes[:size]).hex() for size in range(len(hashes) + 1)]
    assert roots == vectors["roots"]


@given(st.integers(0, 600))
@settings(deadline=None, max_examples=60)
def test_both_roots_equal_the_definition(size: int) -> None:
    entries = oracle.entries(size)
    expected = oracle.mth(entries)
    assert root_of([leaf_hash(entry) for entry in entries]) == expected
    assert tree_root(size, oracle.StrictReader(entries)) == expected


@given(st.integers(0, 300), st.integers(0, 300))
@settings(deadline=None, max_examples=60)
def test_appending_completes_exactly_the_subtrees_that_it_completes(
    size: int, added: int
) -> None:
    entries = oracle.entries(size + added)
    # The reader holds only the old tree: reading a node that is not stored yet would fail.
    peaks = Peaks.of(size, oracle.StrictReader(entries[:size]))
    nodes = [node for entry in entries[size:] for node in peaks.append(leaf_hash(entry))]
    expected = {
        (level, index)
        for level in range((size + added).bit_length())
        for index in range(size >> level, (size + added) >> level)
    }
    assert {(level, index) for level, index, _ in nodes} == expected
    assert len(nodes) == len(expected)
    for level, index, digest in nodes:
        assert digest == oracle.mth(entries[index << level : (index + 1) << level])


@given(st.lists(st.integers(1, 40), max_size=8))
@settings(deadline=None, max_examples=40)
def test_a_log_grown_in_batches_keeps_its_root(batches: list[int]) -> None:
    stored: dict[tuple[int, int], bytes] = {}
    bounds = [sum(batches[:count]) for count in range(len(batches) + 1)]
    entries = oracle.entries(bounds[-1])

    def read(level: int, index: int) -> bytes:
        return stored[level, index]

    for start, end in pairwise(bounds):
        peaks = Peaks.of(start, read)
        for entry in entries[start:end]:
            for level, index, digest in peaks.append(leaf_hash(entry)):
                assert (level, index) not in stored  # a stored node never changes
                if level:
                    assert (level - 1, 2 * index) in stored  # children come first
                    assert (level - 1, 2 * index + 1) in stored
                stored[level, index] = digest
        assert peaks.root() == tree_root(end, read) == oracle.mth(entries[:end])


def test_the_largest_tree_needs_63_reads() -> None:
    reads: list[tuple[int, int]] = []

    def read(level: int, index: int) -> bytes:
        reads.append((level, index))
        return bytes(32)

    tree_root(MAX_SIZE, read)
    assert len(reads) == 63
    assert all((index + 1) << level <= MAX_SIZE for level, index in reads)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (4, 3), (-1, 1), (0, MAX_SIZE + 1)])
def test_no_root_of_what_is_no_range(start: int, end: int) -> None:
    with pytest.raises(AssertionError):
        range_root(start, end, lambda _level, _index: bytes(32))
