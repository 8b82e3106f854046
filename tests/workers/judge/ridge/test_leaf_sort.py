"""Leaves sorted in parts are those sorted at once, and their tree is the same."""

import random
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from workers.judge.merkle import Tree, root_of, table
from workers.judge.ridge import reading as sorting
from workers.judge.ridge.reading import LeafSort, Leaves


def leaf(number: int) -> bytes:
    return sha256(number.to_bytes(4, "big")).digest()


def content(number: int) -> bytes:
    return sha256(leaf(number)).digest()


def leaves(numbers: list[int]) -> Leaves:
    commitments, contents = (table([of(one) for one in numbers]) for of in (leaf, content))
    return Leaves(commitments, contents, np.array(numbers, dtype=np.int64))


def split(numbers: list[int], at_once: int) -> list[list[int]]:
    return [numbers[low : low + at_once] for low in range(0, len(numbers), at_once)]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "MANY", 40)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("count", [0, 1, 40, 41, 700, 3000])
@pytest.mark.parametrize("at_once", [1, 7, 64])
def test_parts_are_all_leaves_in_ascending_order(count: int, at_once: int) -> None:
    numbers = random.Random(count).sample(range(10_000), count)
    sort = LeafSort(*map(leaves, split(numbers, at_once)))
    parts = list(sort.parts())
    assert list(sort.parts()) == []  # they were handed over
    found = [
        (bytes(one), bytes(kept), int(version))
        for part in parts
        for one, kept, version in zip(*part.read(0, len(part)), part.learned, strict=True)
    ]
    assert found == sorted((leaf(one), content(one), one) for one in numbers)
    if count > 40:
        firsts = [{*part.read(0, len(part))[0][:, 0].tolist()} for part in parts]
        assert all(len(one) == 1 for one in firsts)
    else:
        assert len(parts) <= 1


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("count", [1, 2, 41, 300, 3000])
def test_the_tree_of_parts_is_the_tree_of_all(count: int) -> None:
    rng = random.Random(count)
    numbers = sorted(rng.sample(range(10_000), count), key=leaf)
    one = Tree(table([leaf(n) for n in numbers]), table([content(n) for n in numbers]))
    parts = LeafSort(leaves(numbers)).parts()
    many = Tree.of_parts(parts)
    assert len(many) == len(one) == count
    assert many.whole is not None
    assert one.whole is not None
    assert (many.whole.hash, many.whole.count) == (one.whole.hash, one.whole.count)
    gone = rng.sample(numbers, max(1, count // 3))
    places = many.places([leaf(n) for n in gone])
    assert places == one.places([leaf(n) for n in gone])
    left, rest = many.without(many.whole, places), one.without(one.whole, places)
    assert root_of(left) == root_of(rest)
    # Some of the rest are removed too.
    more = [n for n in numbers if n not in gone][: count // 4]
    further = many.places([leaf(n) for n in more])
    assert root_of(many.without(left, further)) == root_of(one.without(rest, further))


@pytest.mark.parametrize("part", ["commitments", "contents", "learned"])
def test_a_part_of_one_leaf_does_not_stand_for_all(part: str) -> None:
    three = leaves([1, 2, 3])
    with pytest.raises(ValueError, match="a leaf has"):
        LeafSort().add(replace(three, **{part: getattr(three, part)[:1]}))


def test_parts_that_are_no_subtrees_are_refused() -> None:
    (whole,) = LeafSort(leaves(list(range(100)))).parts()
    low, high = (
        replace(whole, places=whole.places[:37]),
        replace(whole, places=whole.places[37:]),
    )
    with pytest.raises(ValueError, match="no subtree"):
        Tree.of_parts([low, high])
    with pytest.raises(ValueError, match="sorted"):
        Tree.of_parts([high, low])


@pytest.mark.usefixtures("few")
def test_a_leaf_of_no_part_is_missing() -> None:
    numbers = list(range(300))
    tree = Tree.of_parts(LeafSort(leaves(numbers)).parts())
    for absent in (bytes(32), b"\xff" * 32, leaf(301), leaf(302), leaf(303)):
        with pytest.raises(ValueError, match="not in the set"):
            tree.places([leaf(5), absent])
