"""Ranges against all leaves, for every range of small logs; every planted defect is refused."""

from dataclasses import replace
from typing import Any

import pytest

from lethe.log.proofs import ProofError
from lethe.log.ranges import RangeProof, check_range, prove_range, range_members, read_range
from lethe.log.tree import EMPTY_ROOT, leaf_hash
from tests.fuzz import THOROUGH
from tests.lethe.log import oracle
from tests.lethe.log.vectors import case_name, cases

OTHER = leaf_hash(b"another entry")


def proven(start: int, end: int, size: int) -> tuple[RangeProof, list[bytes], bytes]:
    """Return a range's proof, its leaves and the root over all leaves."""
    entries = oracle.entries(size)
    proof = prove_range(start, end, size, oracle.StrictReader(entries))
    return proof, [leaf_hash(entry) for entry in entries[start:end]], oracle.mth(entries)


def ranges_up_to(most: int) -> list[tuple[int, int, int]]:
    return [
        (start, end, size)
        for size in range(most + 1)
        for end in range(size + 1)
        for start in range(end + 1)
    ]


def refused(proof: RangeProof, leaves: list[bytes], size: int, root: bytes) -> bool:
    try:
        check_range(proof, leaves, size, root)
    except ProofError:
        return True
    return False


@pytest.mark.thorough
def test_every_range_of_a_log_is_proven_against_the_root_of_all_its_leaves() -> None:
    for start, end, size in ranges_up_to(40 if THOROUGH else 16):
        proof, leaves, root = proven(start, end, size)
        entries = oracle.entries(size)
        assert proof.start_root == oracle.mth(entries[:start])
        assert proof.end_root == oracle.mth(entries[:end])
        assert list(proof.own) == (oracle.proof(start, entries[:end]) if start else [])
        assert list(proof.onward) == (oracle.proof(end, entries) if end else [])
        check_range(proof, leaves, size, root)


@pytest.mark.thorough
def test_an_entry_left_out_added_changed_or_moved_is_refused_in_every_range() -> None:
    for start, end, size in ranges_up_to(13 if THOROUGH else 6):
        proof, leaves, root = proven(start, end, size)
        for at in range(len(leaves)):
            without = [*leaves[:at], *leaves[at + 1 :]]
            changed = [*leaves[:at], OTHER, *leaves[at + 1 :]]
            assert refused(proof, without, size, root)
            assert refused(replace(proof, end=end - 1), without, size, root)
            assert refused(replace(proof, start=start + 1), without, size, root)
            assert refused(proof, changed, size, root)
            if at:
                swapped = [*leaves]
                swapped[at - 1], swapped[at] = swapped[at], swapped[at - 1]
                assert refused(proof, swapped, size, root)
        for at in range(len(leaves) + 1):
            more = [*leaves[:at], OTHER, *leaves[at:]]
            assert refused(proof, more, size, root)
            assert refused(replace(proof, end=end + 1), more, size, root)
            if start:
                assert refused(replace(proof, start=start - 1), more, size, root)


@pytest.mark.thorough
def test_a_proof_holds_for_no_other_range_entries_or_root() -> None:
    found = {key: proven(*key) for key in ranges_up_to(9 if THOROUGH else 5)}
    # Ranges of logs of several sizes have the same entries, and those of one size one root.
    entries = {tuple(leaves) for _, leaves, _ in found.values()}
    roots = {root for _, _, root in found.values()}
    for key, (proof, leaves, root) in found.items():
        for (start, end, size), (theirs, others, foreign) in found.items():
            named = replace(proof, start=start, end=end)
            assert named == theirs or refused(named, others, size, foreign)
        for given in entries - {tuple(leaves)}:
            assert refused(proof, list(given), key[2], root)
        if key[1]:  # an empty tree is a prefix of every other
            for foreign in roots - {root}:
                assert refused(proof, leaves, key[2], foreign)


@pytest.mark.thorough
def test_a_proof_holds_for_no_other_size_of_the_log() -> None:
    for start, end, size in ranges_up_to(13 if THOROUGH else 9):
        proof, leaves, root = proven(start, end, size)
        for other in range(size + 4):
            if end and other != size and not size_is_open((start, end, size), other):
                assert refused(proof, leaves, other, root)


def size_is_open(key: tuple[int, int, int], size: int) -> bool:
    """Whether both sizes have one path from the range's end, so that the root fits both.

    The size is not in the proof but in the checkpoint, whose signature binds it to the root.
    """
    end, real = key[1], key[2]
    return size >= end and len(oracle.proof(end, oracle.entries(real))) == len(
        oracle.proof(end, oracle.entries(size))
    )


@pytest.mark.parametrize("case", cases("ranges"), ids=case_name)
def test_range_vectors(case: Any) -> None:
    proof = RangeProof(
        case["start"],
        case["end"],
        bytes.fromhex(case["startRoot"]),
        bytes.fromhex(case["endRoot"]),
        tuple(map(bytes.fromhex, case["own"])),
        tuple(map(bytes.fromhex, case["onward"])),
    )
    leaves = [bytes.fromhex(leaf) for leaf in case["leaves"]]
    given = (proof, leaves, case["size"], bytes.fromhex(case["root"]))
    if case["wantErr"]:
        with pytest.raises(ProofError):
            check_range(*given)
    else:
        check_range(*given)


def test_a_proof_is_read_as_it_was_written() -> None:
    proof, _, _ = proven(3, 6, 7)
    for own in ("range", "period"):
        members = range_members(proof, own)
        assert read_range(members, own) == proof
        assert read_range({**members, "checkpoint": "a note"}, own) == proof


@pytest.mark.parametrize(
    "change",
    [
        {"start": None},
        {"start": {"size": 3}},
        {"end": {"size": 6, "root": "AA=\n"}},
        {"end": {"size": 6, "root": None}},
        {"consistency": {"range": [], "heads": []}},
        {"consistency": {"range": "", "head": []}},
        {"consistency": {"range": [7], "head": []}},
        {"consistency": None},
    ],
)
def test_a_misshapen_proof_is_a_verdict(change: dict[str, Any]) -> None:
    members = range_members(proven(3, 6, 7)[0])
    with pytest.raises(ProofError, match="lacks a member"):
        read_range({**members, **change})


@pytest.mark.parametrize("number", [None, True, "3", 3.0, -1])
def test_a_size_of_another_type_is_a_verdict(number: Any) -> None:
    proof, leaves, root = proven(1, 3, 4)
    for wrong in (replace(proof, start=number), replace(proof, end=number)):
        with pytest.raises(ProofError):
            check_range(wrong, leaves, 4, root)
    with pytest.raises(ProofError):
        check_range(proof, leaves, number, root)


@pytest.mark.parametrize(("start", "end", "size"), [(-1, 2, 3), (2, 1, 3), (1, 4, 3)])
def test_no_proof_of_a_range_that_is_none(start: int, end: int, size: int) -> None:
    with pytest.raises(ProofError, match="0 <= start <= end <= size"):
        prove_range(start, end, size, oracle.StrictReader(oracle.entries(3)))


def test_the_empty_log_is_complete() -> None:
    proof = RangeProof(0, 0, EMPTY_ROOT, EMPTY_ROOT, (), ())
    check_range(proof, [], 0, EMPTY_ROOT)
    assert refused(proof, [OTHER], 0, EMPTY_ROOT)
    assert refused(proof, [], 0, OTHER)
