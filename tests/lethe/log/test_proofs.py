"""Proofs against the recursive definition; every flipped bit and every defect is refused."""

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.log.proofs import (
    ProofError,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
)
from lethe.log.tree import EMPTY_ROOT, leaf_hash
from tests.lethe.log import oracle
from tests.lethe.log.vectors import case_name, cases, foreign, foreign_cases


@st.composite
def leaves(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(st.integers(1, 300))
    return draw(st.integers(0, size - 1)), size


@st.composite
def growths(draw: st.DrawFn) -> tuple[int, int]:
    new = draw(st.integers(1, 300))
    return draw(st.integers(1, new)), new


@given(leaves())
@settings(deadline=None)
def test_inclusion_equals_the_definition_and_holds(leaf: tuple[int, int]) -> None:
    index, size = leaf
    entries = oracle.entries(size)
    proof = inclusion_proof(index, size, oracle.StrictReader(entries))
    assert proof == oracle.path(index, entries)
    check_inclusion(index, size, leaf_hash(entries[index]), proof, oracle.mth(entries))


@given(growths())
@settings(deadline=None)
def test_consistency_equals_the_definition_and_holds(growth: tuple[int, int]) -> None:
    old, new = growth
    entries = oracle.entries(new)
    proof = consistency_proof(old, new, oracle.StrictReader(entries))
    assert proof == oracle.proof(old, entries)
    check_consistency(old, new, proof, oracle.mth(entries[:old]), oracle.mth(entries))


def flips(data: bytes) -> list[bytes]:
    """Return `data` with each of its bits flipped in turn."""
    value = int.from_bytes(data, "big")
    return [(value ^ 1 << bit).to_bytes(len(data), "big") for bit in range(8 * len(data))]


@pytest.mark.parametrize(("index", "size"), [(0, 1), (0, 2), (5, 7), (6, 7), (12, 13), (3, 16)])
def test_every_flipped_bit_breaks_inclusion(index: int, size: int) -> None:
    entries = oracle.entries(size)
    leaf, proof, root = (
        leaf_hash(entries[index]),
        oracle.path(index, entries),
        oracle.mth(entries),
    )
    check_inclusion(index, size, leaf, proof, root)
    bad = [(flipped, proof, root) for flipped in flips(leaf)]
    bad += [(leaf, proof, flipped) for flipped in flips(root)]
    for place, digest in enumerate(proof):
        for flipped in flips(digest):
            bad.append((leaf, [*proof[:place], flipped, *proof[place + 1 :]], root))
    assert len(bad) == 256 * (2 + len(proof))
    for case in bad:
        with pytest.raises(ProofError):
            check_inclusion(index, size, *case)


@pytest.mark.parametrize(("old", "new"), [(1, 2), (3, 7), (4, 7), (6, 7), (7, 7), (8, 13)])
def test_every_flipped_bit_breaks_consistency(old: int, new: int) -> None:
    entries = oracle.entries(new)
    proof = oracle.proof(old, entries)
    old_root, new_root = oracle.mth(entries[:old]), oracle.mth(entries)
    check_consistency(old, new, proof, old_root, new_root)
    bad = [(proof, flipped, new_root) for flipped in flips(old_root)]
    bad += [(proof, old_root, flipped) for flipped in flips(new_root)]
    for place, digest in enumerate(proof):
        for flipped in flips(digest):
            bad.append(([*proof[:place], flipped, *proof[place + 1 :]], old_root, new_root))
    for case in bad:
        with pytest.raises(ProofError):
            check_consistency(old, new, *case)


@given(leaves(), st.data())
@settings(deadline=None)
def test_an_inclusion_proof_holds_for_no_other_leaf(
    leaf: tuple[int, int], data: st.DataObject
) -> None:
    index, size = leaf
    entries = oracle.entries(size)
    other = data.draw(st.integers(0, size))
    if other == index:
        return
    with pytest.raises(ProofError):
        check_inclusion(
            other,
            size,
            leaf_hash(entries[index]),
            oracle.path(index, entries),
            oracle.mth(entries),
        )


@given(growths(), st.data())
@settings(deadline=None)
def test_no_proof_hides_a_changed_past(growth: tuple[int, int], data: st.DataObject) -> None:
    old, new = growth
    honest = oracle.entries(new)
    changed = data.draw(st.integers(0, old - 1))
    forged = (*honest[:changed], b"forged", *honest[changed + 1 :])
    for proof in (oracle.proof(old, honest), oracle.proof(old, forged)):
        with pytest.raises(ProofError):
            check_consistency(old, new, proof, oracle.mth(honest[:old]), oracle.mth(forged))


@pytest.mark.parametrize("case", cases("inclusion"), ids=case_name)
def test_inclusion_vectors(case: Any) -> None:
    proof = [bytes.fromhex(item) for item in case["proof"]]
    leaf, root = bytes.fromhex(case["leaf"]), bytes.fromhex(case["root"])
    _expect(case, check_inclusion, case["index"], case["size"], leaf, proof, root)


@pytest.mark.parametrize("case", cases("consistency"), ids=case_name)
def test_consistency_vectors(case: Any) -> None:
    proof = [bytes.fromhex(item) for item in case["proof"]]
    roots = bytes.fromhex(case["oldRoot"]), bytes.fromhex(case["newRoot"])
    _expect(case, check_consistency, case["old"], case["new"], proof, *roots)


def test_all_vectors_of_others() -> None:
    if foreign() is None:
        pytest.skip("no third-party vectors at hand")
    inclusion = foreign_cases("merkle/testdata/inclusion/**/*.json")
    consistency = foreign_cases("merkle/testdata/consistency/**/*.json")
    assert inclusion
    assert consistency
    for case in inclusion:
        _expect(
            case,
            check_inclusion,
            case["leafIdx"],
            case["treeSize"],
            _b64(case["leafHash"]),
            [_b64(item) for item in case["proof"] or []],
            _b64(case["root"]),
        )
    for case in consistency:
        _expect(
            case,
            check_consistency,
            case["size1"],
            case["size2"],
            [_b64(item) for item in case["proof"] or []],
            _b64(case["root1"]),
            _b64(case["root2"]),
        )


def _b64(text: str | None) -> bytes:
    return base64.b64decode(text or "")


def _expect(case: Any, check: Any, *args: Any) -> None:
    try:
        check(*args)
    except ProofError:
        assert case["wantErr"], case["name"]
    else:
        assert not case["wantErr"], case["name"]


HASH = bytes(32)
# What a careless reader of JSON may pass on: each is a verdict, none a TypeError.
MISSHAPEN: dict[str, Any] = {
    "no list": None,
    "bytes": HASH,
    "text": "0" * 32,
    "list of text": ["0" * 32] * 3,
    "list of none": [None] * 3,
    "list of lists": [[0] * 32] * 3,
    "object": {"0": HASH},
}


@pytest.mark.parametrize("proof", MISSHAPEN.values(), ids=MISSHAPEN)
def test_a_proof_of_another_type_is_a_verdict(proof: Any) -> None:
    with pytest.raises(ProofError):
        check_inclusion(5, 7, HASH, proof, HASH)
    with pytest.raises(ProofError):
        check_consistency(3, 7, proof, HASH, HASH)


@pytest.mark.parametrize("number", [None, True, "1", 1.0, -1, 2**63, 2**64])
def test_a_size_of_another_type_is_a_verdict(number: Any) -> None:
    with pytest.raises(ProofError):
        check_inclusion(0, number, HASH, [], HASH)
    with pytest.raises(ProofError):
        check_inclusion(number, 2, HASH, [HASH], HASH)
    with pytest.raises(ProofError):
        check_consistency(number, 2, [HASH], HASH, HASH)
    with pytest.raises(ProofError):
        check_consistency(1, number, [], HASH, HASH)


@pytest.mark.parametrize("value", [None, "0" * 32, 0, []])
def test_a_leaf_or_root_of_another_type_is_a_verdict(value: Any) -> None:
    with pytest.raises(ProofError):
        check_inclusion(0, 1, value, [], HASH)
    with pytest.raises(ProofError):
        check_inclusion(0, 2, value, [HASH], HASH)
    with pytest.raises(ProofError):
        check_inclusion(0, 1, HASH, [], value)
    with pytest.raises(ProofError):
        check_consistency(1, 1, [], value, value)
    with pytest.raises(ProofError):
        check_consistency(1, 2, [HASH], value, HASH)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (7, 7), (-1, 7), (0, 2**63)])
def test_no_proof_of_a_leaf_that_is_not_there(index: int, size: int) -> None:
    with pytest.raises(ProofError, match="index must be below the tree size"):
        inclusion_proof(index, size, lambda _level, _index: HASH)


@pytest.mark.parametrize(("old", "new"), [(0, 7), (0, 0), (8, 7), (-1, 7), (1, 2**63)])
def test_no_proof_of_growth_that_is_none(old: int, new: int) -> None:
    with pytest.raises(ProofError, match="0 < old size <= new size"):
        consistency_proof(old, new, lambda _level, _index: HASH)


def test_an_empty_tree_is_no_evidence() -> None:
    # Accepting size 0 would let a client believe that it had compared something.
    with pytest.raises(ProofError):
        check_consistency(0, 1, [], EMPTY_ROOT, HASH)
