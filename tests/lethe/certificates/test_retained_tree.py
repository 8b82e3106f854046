"""The tree of a set against its definition, whatever order the records came and went in."""

import random
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.certificates import retained_tree
from lethe.certificates.errors import RemovalError
from lethe.certificates.retained_tree import (
    EMPTY_ROOT,
    Path,
    PathStep,
    RetainedTree,
    folded_root,
    follow,
    retained_root,
)
from tests.fuzz import fuzz
from tests.lethe.certificates.leaves import bare
from tests.lethe.certificates.tree_oracle import oracle_root, step_by_step
from tests.lethe.log.vectors import ROOT, read_cases

VECTORS = ROOT / "tests" / "vectors" / "retained-set"

# Few bytes, so that commitments share long prefixes; the rest is as hashes are.
WORD = st.binary(min_size=32, max_size=32)
NEAR = st.lists(st.sampled_from([0, 1, 127, 128, 254, 255]), min_size=32, max_size=32)
COMMITMENT = st.one_of(
    WORD,
    NEAR.map(bytes),
    st.integers(0, 20).map(lambda number: bytes(31) + bytes([number])),
)
FLAG = st.booleans()
SETS = st.dictionaries(COMMITMENT, WORD, max_size=30)


@fuzz(100)
@given(SETS, st.randoms(use_true_random=False))
def test_the_root_is_the_definitions_in_every_order(
    leaves: dict[bytes, bytes], order: random.Random
) -> None:
    expected = oracle_root(leaves)
    shuffled = list(leaves.items())
    order.shuffle(shuffled)
    grown = RetainedTree()
    for commitment, content in shuffled:
        grown.add(commitment, content)
    built = RetainedTree(shuffled)
    assert (grown.root, grown.count) == (built.root, built.count) == (expected, len(leaves))
    assert retained_root(shuffled) == expected
    assert folded_root(sorted(leaves.items())) == (expected, len(leaves))


@fuzz(100)
@given(SETS, st.data())
def test_a_history_of_adds_and_removes_leaves_the_tree_of_the_set(
    leaves: dict[bytes, bytes], data: st.DataObject
) -> None:
    tree, known = RetainedTree(leaves.items()), dict(leaves)
    for drawn in data.draw(st.lists(st.tuples(FLAG, FLAG), max_size=12)):
        removing, looking = drawn
        if known and removing:
            commitment = data.draw(st.sampled_from(sorted(known)))
            path = tree.remove(commitment)
            content = known[commitment]
            before = oracle_root(known), len(known)
            del known[commitment]
            after = oracle_root(known), len(known)
            assert path.content == content
            assert follow(commitment, path) == (before, after)
            steps = [(step.bit, step.count, step.hash) for step in path.steps]
            assert step_by_step(commitment, content, steps) == before
            assert commitment not in tree
        else:
            commitment, content = data.draw(COMMITMENT), data.draw(WORD)
            if commitment in known:
                with pytest.raises(RemovalError, match="is in the retained set"):
                    tree.add(commitment, content)
            else:
                tree.add(commitment, content)
                known[commitment] = content
                assert commitment in tree
        assert tree.count == len(known)
        if looking:  # not always: hashes may wait for several changes
            assert tree.root == oracle_root(known)
    assert tree.root == oracle_root(known)


@pytest.mark.parametrize("case", read_cases(VECTORS / "roots"), ids=lambda case: case["name"])
def test_the_published_roots(case: dict[str, Any]) -> None:
    leaves = {bytes.fromhex(one): bytes.fromhex(two) for one, two in case["leaves"]}
    assert retained_root(leaves.items()).hex() == case["root"]
    assert oracle_root(leaves).hex() == case["root"]


A, B, C = (bytes([value]) * 32 for value in (1, 2, 3))


@pytest.mark.parametrize("leaves", [[A, A], [A, C, B, A], [A, B[:31]], [b""]], ids=repr)
def test_a_repeated_or_misshapen_commitment_has_no_root(leaves: list[bytes]) -> None:
    with pytest.raises(RemovalError):
        RetainedTree(bare(leaves))
    with pytest.raises(RemovalError):
        retained_root(bare(leaves))


def test_what_is_read_once_must_ascend() -> None:
    with pytest.raises(RemovalError, match="ascend"):
        folded_root(bare([B, A]))


@pytest.mark.parametrize(
    ("commitment", "content"), [(A[:31], B), (A + b"\0", B), (A, B[:31]), (A, b"")]
)
def test_what_is_not_32_bytes_is_not_added(commitment: bytes, content: bytes) -> None:
    tree = RetainedTree([(C, B)])
    with pytest.raises(RemovalError, match="32 bytes"):
        tree.add(commitment, content)
    assert tree.root == oracle_root({C: B})


@pytest.mark.parametrize("leaves", [[], [A], [A, B]])
def test_what_the_set_lacks_is_not_removed(leaves: list[bytes]) -> None:
    tree = RetainedTree(bare(leaves))
    with pytest.raises(RemovalError, match="not in the retained set"):
        tree.remove(C)
    assert (tree.root, tree.count) == (oracle_root(dict(bare(leaves))), len(leaves))


def test_the_content_of_a_record_is_in_the_root() -> None:
    roots = {retained_root([(A, content), (B, C)]) for content in (A, B, bytes(32))}
    assert len(roots) == 3


def test_a_removal_hashes_its_path_only(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = bare(sha256(bytes([i, j])).digest() for i in range(40) for j in range(50))
    tree = RetainedTree(leaves)
    assert tree.count == 2000
    assert tree.root == retained_root(leaves)
    hashed: list[bytes] = []

    def counted(data: bytes) -> object:
        hashed.append(data)
        return sha256(data)

    monkeypatch.setattr(retained_tree, "sha256", counted)
    for commitment, _ in leaves[:100]:
        hashed.clear()
        path = tree.remove(commitment)
        assert tree.root != EMPTY_ROOT
        assert len(hashed) == len(path.steps) - 1 < 30  # log2(2,000) = 11


# --- one path, every part of it changed -------------------------------------------------

KNOWN = {sha256(bytes([i])).digest(): sha256(bytes([i, 1])).digest() for i in range(40)}
CHOSEN = sorted(KNOWN)[17]
PATH = RetainedTree(KNOWN.items()).remove(CHOSEN)
BEFORE = oracle_root(KNOWN), 40


def flipped(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data) ^ 1 << bit).to_bytes(len(data))


def leads_there(commitment: bytes, path: Path) -> bool:
    try:
        return follow(commitment, path)[0] == BEFORE
    except RemovalError:
        return False


def with_step(place: int, **changes: object) -> Path:
    one = PATH.steps[place]
    parts = {"bit": one.bit, "count": one.count, "hash": one.hash, **changes}
    steps = [*PATH.steps]
    steps[place] = PathStep(**parts)  # type: ignore[arg-type]
    return Path(PATH.content, tuple(steps))


def test_the_path_itself_leads_there() -> None:
    assert leads_there(CHOSEN, PATH)
    assert len(PATH.steps) >= 4


def test_no_bit_of_a_hash_can_be_flipped() -> None:
    for bit in range(256):
        assert not leads_there(flipped(CHOSEN, bit), PATH)
        assert not leads_there(CHOSEN, Path(flipped(PATH.content, bit), PATH.steps))
        for place, step in enumerate(PATH.steps):
            assert not leads_there(CHOSEN, with_step(place, hash=flipped(step.hash, bit)))


def test_no_bit_index_and_no_count_can_be_changed() -> None:
    for place, step in enumerate(PATH.steps):
        for bit in {*range(-1, 258)} - {step.bit}:
            assert not leads_there(CHOSEN, with_step(place, bit=bit))
        for count in {*range(-1, 42), 2**63 - 1, 2**63, 2**64} - {step.count}:
            assert not leads_there(CHOSEN, with_step(place, count=count))


def test_counts_cannot_be_moved_between_steps() -> None:
    steps = [*PATH.steps]
    first, second = steps[0], steps[1]
    steps[0] = PathStep(first.bit, first.count + 1, first.hash)
    steps[1] = PathStep(second.bit, second.count - 1, second.hash)
    assert not leads_there(CHOSEN, Path(PATH.content, tuple(steps)))


OTHERS: dict[str, Callable[[tuple[PathStep, ...]], tuple[PathStep, ...]]] = {
    "none": lambda steps: (),
    "without the lowest": lambda steps: steps[1:],
    "without the highest": lambda steps: steps[:-1],
    "without one between": lambda steps: steps[:1] + steps[2:],
    "one twice": lambda steps: steps[:1] + steps,
    "the lowest two swapped": lambda steps: (steps[1], steps[0], *steps[2:]),
    "the highest two swapped": lambda steps: (*steps[:-2], steps[-1], steps[-2]),
    "from the root down": lambda steps: steps[::-1],
    "one more below": lambda steps: (PathStep(255, 1, bytes(32)), *steps),
    "of another leaf": lambda steps: RetainedTree(KNOWN.items()).remove(max(KNOWN)).steps,
    "of a set without another leaf": lambda steps: (
        RetainedTree((one, two) for one, two in KNOWN.items() if one != min(KNOWN))
        .remove(CHOSEN)
        .steps
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_steps_do_not_lead_there(name: str) -> None:
    assert not leads_there(CHOSEN, Path(PATH.content, OTHERS[name](PATH.steps)))


def test_a_tree_that_divides_at_a_later_bit_first_has_no_path() -> None:
    one, two, three = bytes(32), b"\x40" + bytes(31), b"\x80" + bytes(31)
    beside = retained_tree.leaf_hash(three, A), retained_tree.leaf_hash(two, A)
    crooked = Path(A, (PathStep(0, 1, beside[0]), PathStep(1, 1, beside[1])))
    with pytest.raises(RemovalError, match="do not fall"):
        follow(one, crooked)
