"""Removal proofs against a tree and a set that share no code with the prover.

`tree_oracle` has the tree; `test_retained_tree` changes every part of one path.
"""

import copy
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.canonical import format_base64, parse_base64
from lethe.certificates import shape
from lethe.certificates.errors import RemovalError, ShapeError
from lethe.certificates.evidence import (
    Removal,
    RemovedRecord,
    check_sets,
    prove_removal,
    record_commitment,
)
from lethe.certificates.retained_tree import RetainedTree, retained_root
from lethe.certificates.shape import read, write
from lethe.certificates.statement import SetState
from tests.lethe.certificates.build import commitments, salts
from tests.lethe.certificates.leaves import bare
from tests.lethe.certificates.tree_oracle import bare_root
from tests.lethe.log.oracle import mth
from tests.lethe.log.vectors import ROOT, read_cases

VECTORS = ROOT / "tests" / "vectors" / "retained-set" / "removals"
Section = dict[str, Any]


def check_removal(
    section: Any,
    before_root: bytes,
    before_count: int,
    after_root: bytes,
    after_count: int,
    records: int,
    records_root: bytes,
) -> None:
    before, after = SetState(before_root, before_count), SetState(after_root, after_count)
    check_sets(shape.read(Removal, section), before, after, records, records_root)


def check(section: Section, **changes: Any) -> None:
    """Check a section against the numbers it states itself, or others."""
    before, after = read(SetState, section["before"]), read(SetState, section["after"])
    stated: dict[str, Any] = {
        "before_root": before.root,
        "before_count": before.count,
        "after_root": after.root,
        "after_count": after.count,
        "records": len(section["records"]),
        "records_root": parse_base64(section["recordsRoot"]),
    }
    check_removal(section, **stated | changes)


def bare_tree(known: Iterable[bytes]) -> RetainedTree:
    return RetainedTree(bare(known))


@settings(deadline=None)
@given(st.data(), st.integers(1, 70))
def test_every_removal_is_proven_and_the_roots_are_the_oracles(
    data: st.DataObject, size: int
) -> None:
    known = salts(size)
    erased = data.draw(st.sets(st.sampled_from(sorted(known)), min_size=1))
    before = commitments(known)
    gone = sorted(record_commitment(known[name], name) for name in erased)
    after = [commitment for commitment in before if commitment not in gone]
    tree = bare_tree(before)
    section = prove_removal(tree, {name: known[name] for name in erased})
    assert (tree.root, tree.count) == (bare_root(after), len(after))
    check_removal(
        section,
        bare_root(before),
        size,
        bare_root(after),
        len(after),
        len(erased),
        mth(tuple(gone)),
    )
    assert {entry["record"] for entry in section["records"]} == erased


@pytest.mark.parametrize("case", read_cases(VECTORS), ids=lambda case: case["name"])
def test_vectors(case: Section) -> None:
    said = case["certificate"]
    before, after = read(SetState, said["before"]), read(SetState, said["after"])
    root, count = parse_base64(said["recordsRoot"]), int(said["records"])
    given = case["removal"], before.root, before.count, after.root, after.count, count, root
    if case["wantErr"]:
        with pytest.raises(RemovalError):
            check_removal(*given)
    else:
        check_removal(*given)


def test_the_commitment_is_hmac_sha256() -> None:
    # RFC 2104 spelled out: 32-byte key, padded to the 64-byte block
    salt = bytes(range(32))
    inner = sha256(bytes(b ^ 0x36 for b in salt + bytes(32)) + "Zoë/7".encode()).digest()
    outer = sha256(bytes(b ^ 0x5C for b in salt + bytes(32)) + inner).digest()
    assert record_commitment(salt, "Zoë/7") == outer


@pytest.mark.parametrize("size", [0, 16, 31, 33, 64])
def test_a_salt_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(RemovalError, match="32 bytes"):
        record_commitment(bytes(size), "record")


def test_a_record_id_that_utf8_cannot_carry_is_refused() -> None:
    with pytest.raises(RemovalError):
        record_commitment(bytes(32), "\ud800")


def test_what_is_not_in_the_set_cannot_be_removed() -> None:
    known = salts(5)
    with pytest.raises(RemovalError, match="not in the retained set"):
        prove_removal(bare_tree(commitments(known)), {"stranger": bytes(32)})
    with pytest.raises(RemovalError, match="not in the retained set"):
        prove_removal(bare_tree(commitments(known)), {"record-1": known["record-2"]})
    with pytest.raises(RemovalError, match="at least one"):
        prove_removal(bare_tree(commitments(known)), {})


# --- a dishonest prover: everything it can make consistent is consistent ---------------

SIZE = 40
KNOWN = salts(SIZE)
BEFORE = commitments(KNOWN)
ORDER = sorted(KNOWN, key=lambda name: record_commitment(KNOWN[name], name))


def honest(*places: int) -> Section:
    """Erase the records at these places of the sorted set."""
    return prove_removal(
        bare_tree(BEFORE), {ORDER[place]: KNOWN[ORDER[place]] for place in places}
    )


def state(known: list[bytes]) -> Section:
    return write(SetState(bare_root(known), len(known)))


def claim(section: Section, after: list[bytes]) -> Section:
    """Replace the set after; the paths are true ones of the set before."""
    section["after"] = state(after)
    return section


def still_there(section: Section) -> Section:
    # Another record was removed in its place, so that the count is right.
    return claim(section, [*BEFORE[:3], *BEFORE[4:]])


def still_there_by_its_path(section: Section) -> Section:
    other = prove_removal(bare_tree(BEFORE), {ORDER[3]: KNOWN[ORDER[3]]})
    section["records"][0]["path"] = other["records"][0]["path"]
    section["after"] = other["after"]
    return section


def nothing_removed(section: Section) -> Section:
    return claim(section, BEFORE)


def two_removed(section: Section) -> Section:
    return claim(section, [*BEFORE[:10], *BEFORE[12:]])


def two_removed_as_one(section: Section) -> Section:
    claim(section, [*BEFORE[:10], *BEFORE[12:]])
    section["after"]["count"] = str(SIZE - 1)
    return section


def exchanged(section: Section) -> Section:
    # The erased record left, and the content of another one was replaced.
    leaves = dict(bare([*BEFORE[:10], *BEFORE[11:]])) | {BEFORE[3]: bytes([1]) * 32}
    section["after"] = write(SetState(retained_root(leaves.items()), SIZE - 1))
    return section


def never_there(section: Section) -> Section:
    """A record that the set never had, over the path of one that it has."""
    salt = bytes(32)
    commitment = record_commitment(salt, "stranger")
    entry = section["records"][0]
    entry |= {"record": "stranger", "salt": format_base64(salt)}
    entry["commitment"] = format_base64(commitment)
    section["recordsRoot"] = format_base64(mth((commitment,)))
    return section


def wrong_salt(section: Section) -> Section:
    section["records"][0]["salt"] = format_base64(bytes(32))
    return section


def other_record(section: Section) -> Section:
    section["records"][0]["record"] += "0"
    return section


def count_after(section: Section) -> Section:
    section["after"]["count"] = str(SIZE - 2)
    return section


def count_before(section: Section) -> Section:
    section["before"]["count"] = str(SIZE + 1)
    return section


def other_path(section: Section) -> Section:
    section["records"][0]["path"] = honest(11)["records"][0]["path"]
    return section


def path_after(section: Section) -> Section:
    tree = bare_tree([*BEFORE[:11], *BEFORE[12:]])
    section["records"][0]["path"] = write(tree.remove(BEFORE[10]))
    return section


def cut_path(section: Section) -> Section:
    section["records"][0]["path"]["steps"].pop()
    return section


def no_path(section: Section) -> Section:
    section["records"][0]["path"]["steps"] = []
    return section


def other_content(section: Section) -> Section:
    section["records"][0]["path"]["content"] = format_base64(bytes([1]) * 32)
    return section


def repeated(section: Section) -> Section:
    section["records"] *= 2
    return section


def no_records(section: Section) -> Section:
    section["records"] = []
    section["recordsRoot"] = format_base64(sha256(b"").digest())
    return section


def other_records_root(section: Section) -> Section:
    section["recordsRoot"] = format_base64(bytes(32))
    return section


PLANTED: dict[str, tuple[Callable[[Section], Section], str]] = {
    "record still in the set after": (still_there, "not what the removed records leave"),
    "record still there, another's path": (still_there_by_its_path, "path does not lead"),
    "nothing removed": (nothing_removed, "shrink"),
    "one more removed than said": (two_removed, "shrink"),
    "one more removed, under the right count": (two_removed_as_one, "not what"),
    "content of another record exchanged": (exchanged, "not what"),
    "a record that was never there": (never_there, "path does not lead"),
    "wrong salt": (wrong_salt, "open"),
    "another record id": (other_record, "open"),
    "count after off by one": (count_after, "shrink"),
    "count before off by one": (count_before, "shrink"),
    "path of another record": (other_path, "path does not lead"),
    "path of another set": (path_after, "path does not lead"),
    "path cut short": (cut_path, "path does not lead"),
    "no path": (no_path, "path does not lead"),
    "another content": (other_content, "path does not lead"),
    "a record listed twice": (repeated, "ascend"),
    "no records": (no_records, "number of records"),
    "another records root": (other_records_root, "scope"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_caught(name: str) -> None:
    plant, message = PLANTED[name]
    section = honest(10)
    check(section)
    with pytest.raises(RemovalError, match=message):
        check(plant(copy.deepcopy(section)))


@pytest.mark.parametrize("places", [(3, 10), (10, 11), (0, 20, 39), (5, 6, 7, 8, 9)])
def test_each_path_is_of_the_set_that_the_one_before_left(places: tuple[int, ...]) -> None:
    section = honest(*places)
    check(section)
    first = copy.deepcopy(section)
    last = honest(places[-1])["records"][0]
    assert first["records"][-1] != last
    first["records"][-1] = last
    with pytest.raises(RemovalError, match=f"record {len(places)}: its path does not lead"):
        check(first)
    section["records"].reverse()
    with pytest.raises(RemovalError, match="ascend"):
        check(section)


def test_one_record_under_two_salts_is_not_two_records() -> None:
    salts = [bytes(32), bytes([1]) * 32]
    opened = sorted((record_commitment(salt, "record-x"), salt) for salt in salts)
    tree = bare_tree([*BEFORE, *(one for one, _ in opened)])
    section = honest(10)
    section["before"] = write(SetState(tree.root, tree.count))
    section["records"] = [
        write(RemovedRecord("record-x", salt, one, tree.remove(one))) for one, salt in opened
    ]
    section["recordsRoot"] = format_base64(mth(tuple(one for one, _ in opened)))
    with pytest.raises(RemovalError, match="twice under different salts"):
        check(claim(section, BEFORE))


OTHERS: dict[str, tuple[Any, str]] = {
    "before_root": (bytes(32), "other retained sets"),
    "before_count": (SIZE + 1, "other retained sets"),
    "after_root": (bytes(32), "other retained sets"),
    "after_count": (SIZE, "other retained sets"),
    "records": (2, "another number of records"),
    "records_root": (bytes(32), "scope"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_section_of_another_certificate_is_refused(name: str) -> None:
    value, message = OTHERS[name]
    with pytest.raises(RemovalError, match=message):
        check(honest(10), **{name: value})


def test_an_empty_set_has_one_root() -> None:
    section = prove_removal(bare_tree(BEFORE), KNOWN)
    check(section)
    assert section["after"] == state([])
    section["after"]["root"] = format_base64(bytes(32))
    with pytest.raises(RemovalError, match="not what the removed records leave"):
        check(section)


def test_a_record_that_is_missing_leaves_the_set_as_it_was() -> None:
    tree = bare_tree(BEFORE)
    with pytest.raises(RemovalError, match="not in the retained set"):
        prove_removal(tree, {ORDER[3]: KNOWN[ORDER[3]], "stranger": bytes(32)})
    assert (tree.root, tree.count) == (bare_root(BEFORE), SIZE)


@pytest.mark.parametrize("section", [None, [], {}, {"before": {}}, "x"])
def test_what_is_no_section_is_refused_by_shape(section: Any) -> None:
    with pytest.raises(ShapeError):
        check_removal(section, bytes(32), 2, bytes(32), 1, 1, bytes(32))


def test_no_message_names_a_record() -> None:
    with pytest.raises(RemovalError) as caught:
        check(wrong_salt(honest(10)))
    assert "record 1: " in caught.value.detail
    assert ORDER[10] not in caught.value.detail
