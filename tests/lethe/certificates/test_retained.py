"""Removal proofs against a tree and a set that share no code with the prover."""

import copy
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.certificates import retained
from lethe.certificates.errors import RemovalError, ShapeError
from lethe.certificates.retained import (
    RetainedTree,
    check_removal,
    prove_removal,
    record_commitment,
    retained_root,
)
from lethe.certificates.shape import read, write
from lethe.certificates.statement import SetState
from lethe.log.spelling import format_base64, parse_base64
from lethe.log.tree import leaf_hashes
from tests.lethe.certificates.build import commitments, salts

Section = dict[str, Any]


def oracle_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962 section 2.1, word by word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha256(b"\x01" + oracle_root(leaves[:k]) + oracle_root(leaves[k:])).digest()


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


@settings(deadline=None)
@given(st.data(), st.integers(1, 70))
def test_every_removal_is_proven_and_the_roots_are_the_oracles(
    data: st.DataObject, size: int
) -> None:
    known = salts(size)
    erased = data.draw(st.sets(st.sampled_from(sorted(known)), min_size=1))
    before = commitments(known)
    gone = {record_commitment(known[name], name) for name in erased}
    after = [commitment for commitment in before if commitment not in gone]
    section = prove_removal(before, {name: known[name] for name in erased})
    check_removal(
        section,
        oracle_root(before),
        size,
        oracle_root(after),
        len(after),
        len(erased),
        oracle_root(sorted(gone)),
    )
    assert {entry["record"] for entry in section["records"]} == erased


@settings(deadline=None)
@given(st.sets(st.binary(min_size=32, max_size=32), max_size=40))
def test_the_root_is_the_oracles(leaves: set[bytes]) -> None:
    assert retained_root(sorted(leaves)) == oracle_root(sorted(leaves))


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


A, B, C = (bytes([value]) * 32 for value in (1, 2, 3))


@pytest.mark.parametrize("leaves", [[B, A], [A, A], [A, C, B], [A, B[:31]], [b""]], ids=repr)
def test_an_unsorted_repeated_or_misshapen_set_has_no_root(leaves: list[bytes]) -> None:
    with pytest.raises(RemovalError):
        retained_root(leaves)


def test_what_is_not_in_the_set_cannot_be_removed() -> None:
    known = salts(5)
    with pytest.raises(RemovalError, match="not in the retained set"):
        prove_removal(commitments(known), {"stranger": bytes(32)})
    with pytest.raises(RemovalError, match="not in the retained set"):
        prove_removal(commitments(known), {"record-1": known["record-2"]})
    with pytest.raises(RemovalError, match="at least one"):
        prove_removal(commitments(known), {})


# --- a dishonest prover: everything it can make consistent is consistent ---------------

SIZE = 40
KNOWN = salts(SIZE)
BEFORE = commitments(KNOWN)
ORDER = sorted(KNOWN, key=lambda name: record_commitment(KNOWN[name], name))


def honest(*places: int) -> Section:
    """Erase the records at these places of the sorted set."""
    return prove_removal(BEFORE, {ORDER[place]: KNOWN[ORDER[place]] for place in places})


def claim(section: Section, after: RetainedTree) -> Section:
    """Replace the set after and lay every absence proof anew around what is in it."""
    section["after"] = write(after.state)
    for entry in section["records"]:
        leaf = parse_base64(entry["commitment"])
        place = sum(commitment < leaf for commitment in after.commitments)
        entry["absence"] = {
            "left": neighbour(after, place - 1),
            "right": neighbour(after, place),
        }
    return section


def neighbour(tree: RetainedTree, index: int) -> Section | None:
    found = tree.neighbour(index)
    return None if found is None else write(found)


def still_there(section: Section) -> Section:
    # Another record was removed in its place, so that the count is right.
    return claim(section, RetainedTree([*BEFORE[:3], *BEFORE[4:]]))


def still_there_hidden(section: Section) -> Section:
    tree = RetainedTree([*BEFORE[:3], *BEFORE[4:]])
    claim(section, tree)
    (entry,) = section["records"]
    place = tree.commitments.index(parse_base64(entry["commitment"]))
    entry["absence"] = {
        "left": neighbour(tree, place - 1),
        "right": neighbour(tree, place + 1),
    }
    return section


def still_there_as_left(section: Section) -> Section:
    tree = RetainedTree([*BEFORE[:3], *BEFORE[4:]])
    claim(section, tree)
    (entry,) = section["records"]
    place = tree.commitments.index(parse_base64(entry["commitment"]))
    entry["absence"] = {
        "left": neighbour(tree, place),
        "right": neighbour(tree, place + 1),
    }
    return section


def nothing_removed(section: Section) -> Section:
    return claim(section, RetainedTree(BEFORE))


def two_removed(section: Section) -> Section:
    return claim(section, RetainedTree([*BEFORE[:10], *BEFORE[12:]]))


def wrong_salt(section: Section) -> Section:
    section["records"][0]["salt"] = format_base64(bytes(32))
    return section


def other_record(section: Section) -> Section:
    section["records"][0]["record"] += "0"
    return section


def swapped_neighbours(section: Section) -> Section:
    absence = section["records"][0]["absence"]
    absence["left"], absence["right"] = absence["right"], absence["left"]
    return section


def distant_neighbours(section: Section) -> Section:
    tree = RetainedTree([*BEFORE[:10], *BEFORE[11:]])
    section["records"][0]["absence"]["left"] = neighbour(tree, 8)
    return section


def renumbered_neighbour(section: Section) -> Section:
    tree = RetainedTree([*BEFORE[:10], *BEFORE[11:]])
    far = neighbour(tree, 8)
    assert far is not None
    far["index"] = "9"
    section["records"][0]["absence"]["left"] = far
    return section


def no_left(section: Section) -> Section:
    section["records"][0]["absence"]["left"] = None
    return section


def no_right(section: Section) -> Section:
    section["records"][0]["absence"]["right"] = None
    return section


def no_neighbours(section: Section) -> Section:
    section["records"][0]["absence"] = {"left": None, "right": None}
    return section


def neighbour_of_before(section: Section) -> Section:
    section["records"][0]["absence"]["right"] = neighbour(RetainedTree(BEFORE), 11)
    return section


def count_after(section: Section) -> Section:
    section["after"]["count"] = str(SIZE - 2)
    return section


def count_before(section: Section) -> Section:
    section["before"]["count"] = str(SIZE + 1)
    return section


def moved_inclusion(section: Section) -> Section:
    section["records"][0]["inclusion"]["index"] = "11"
    return section


def cut_inclusion(section: Section) -> Section:
    section["records"][0]["inclusion"]["hashes"].pop()
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
    "record still in the set after": (still_there, "not above"),
    "record still there, skipped over": (still_there_hidden, "not adjacent"),
    "record still there, as its own neighbour": (still_there_as_left, "not below"),
    "nothing removed": (nothing_removed, "shrink"),
    "one more removed than said": (two_removed, "shrink"),
    "wrong salt": (wrong_salt, "open"),
    "another record id": (other_record, "open"),
    "neighbours swapped": (swapped_neighbours, "not below"),
    "neighbours not adjacent": (distant_neighbours, "not adjacent"),
    "a far neighbour under the near one's number": (renumbered_neighbour, "another root"),
    "left neighbour withheld": (no_left, "not adjacent"),
    "right neighbour withheld": (no_right, "not adjacent"),
    "both withheld": (no_neighbours, "not adjacent"),
    "a neighbour from the set before": (neighbour_of_before, "not adjacent"),
    "count after off by one": (count_after, "shrink"),
    "count before off by one": (count_before, "shrink"),
    "inclusion at another index": (moved_inclusion, "another root"),
    "inclusion cut short": (cut_inclusion, "hashes"),
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


def test_one_record_under_two_salts_is_not_two_records() -> None:
    twice = {"record-x": bytes(32), "record-y": bytes([1]) * 32}
    both = sorted([record_commitment(salt, "record-x") for salt in twice.values()])
    before = sorted([*BEFORE, *both])
    tree = RetainedTree(before)
    section = honest(10)
    section["before"], section["recordsRoot"] = (
        write(tree.state),
        format_base64(oracle_root(both)),
    )
    template = section["records"][0]
    section["records"] = []
    for commitment in both:
        salt = next(s for s in twice.values() if record_commitment(s, "record-x") == commitment)
        index = before.index(commitment)
        inclusion = {"index": str(index), "hashes": list(map(format_base64, tree.prove(index)))}
        opened = {"salt": format_base64(salt), "commitment": format_base64(commitment)}
        entry = template | opened | {"record": "record-x", "inclusion": inclusion}
        section["records"].append(entry)
    with pytest.raises(RemovalError, match="twice under different salts"):
        check(claim(section, RetainedTree(BEFORE)))


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
    section = prove_removal(BEFORE, KNOWN)
    check(section)
    assert section["after"] == {"root": format_base64(sha256(b"").digest()), "count": "0"}
    section["after"]["root"] = format_base64(bytes(32))
    with pytest.raises(RemovalError, match="empty"):
        check(section)


@pytest.mark.parametrize("places", [(0,), (SIZE - 1,), (0, 1, SIZE - 2, SIZE - 1)])
def test_the_ends_of_the_set_have_one_neighbour(places: tuple[int, ...]) -> None:
    section = honest(*places)
    check(section)
    sides = [entry["absence"] for entry in section["records"]]
    assert all((side["left"] is None) != (side["right"] is None) for side in sides)


@pytest.mark.parametrize("section", [None, [], {}, {"before": {}}, "x"])
def test_what_is_no_section_is_refused_by_shape(section: Any) -> None:
    with pytest.raises(ShapeError):
        check_removal(section, bytes(32), 2, bytes(32), 1, 1, bytes(32))


def test_no_message_names_a_record() -> None:
    with pytest.raises(RemovalError) as caught:
        check(wrong_salt(honest(10)))
    assert "record 1: " in caught.value.detail
    assert ORDER[10] not in caught.value.detail


def test_proving_many_records_hashes_each_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []

    def counted(leaves: Iterable[bytes]) -> list[bytes]:
        given = list(leaves)
        hashed.extend(given)
        return leaf_hashes(given)

    monkeypatch.setattr(retained, "leaf_hashes", counted)
    prove_removal(BEFORE, {name: KNOWN[name] for name in ORDER[:30]})
    assert len(hashed) == SIZE + (SIZE - 30) + 30  # before, after, and the records' own tree
