"""No content moves between rows unseen: each claim here differs from a true one in one thing."""

import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.arrays import Rows
from workers.families.ridge import rows as ridge_rows
from workers.families.ridge.blocks import RowBlock
from workers.judge.base import Judgement
from workers.judge.ridge.claim import BlockClaim, RowsClaim
from workers.judge.ridge.row_digests import check_rows, stored

D = 4
ANNA, BERT = ("north", "anna"), ("south", "bert")
# r0, r1 and r4 are anna's, the rest bert's; two came with version 1, two with 2, two with 3.
OWNER = [ANNA, ANNA, BERT, BERT, ANNA, BERT]
LEARNED = [1, 1, 2, 2, 3, 3]


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def by_hand(row: int, rows: Rows, salts: Any) -> bytes:
    client, subject = OWNER[row]
    return sha(
        *(b"lethe/row/v1\0", sha(client.encode()), sha(subject.encode())),
        *(sha(f"r{row}".encode()), bytes(salts[row].tolist())),
        struct.pack("<q", rows.labels[row]),
        struct.pack(f"<{D}h", *rows.codes[row]),
    )


def whole() -> tuple[Rows, Any]:
    rng = np.random.default_rng(3)
    codes = rng.integers(-32767, 32768, size=(6, D)).astype(np.int16)
    rows = Rows(codes, rng.integers(0, 3, size=6))
    return rows, rng.integers(0, 256, size=(6, 32)).astype(np.uint8)


ROWS, SALTS = whole()
DIGESTS = [by_hand(row, ROWS, SALTS) for row in range(6)]


def rows_of(*places: int, rows: Rows = ROWS) -> str:
    digests = sorted(by_hand(place, rows, SALTS) for place in places)
    return sha(b"lethe/rows/v1\0", *digests).hex()


def grown(before: str, *places: int) -> str:
    return sha(
        b"lethe/grown/v1\0", bytes.fromhex(before), bytes.fromhex(rows_of(*places))
    ).hex()


def blocks(stays: list[int], rows: Rows = ROWS) -> tuple[list[BlockClaim], list[Rows]]:
    claims, parts = [], []
    for owner in (ANNA, BERT):
        own = [row for row in stays if OWNER[row] == owner]
        names, learned = [f"r{row}" for row in own], np.array([LEARNED[row] for row in own])
        claims.append(BlockClaim(*owner, names, SALTS[own], learned))
        parts.append(Rows(rows.codes[own], rows.labels[own]))
    return claims, parts


def claim(
    gone: tuple[int, ...] = (1,), since: int = 2, rows: Rows = ROWS
) -> tuple[RowsClaim, list[Rows]]:
    """An erasure of `gone` from version 3; since 0, 1 or 2: which one an erasure had made."""
    stays = [row for row in range(6) if row not in gone]
    before = [rows_of(*(row for row in range(6) if LEARNED[row] <= since))]
    for number in range(since + 1, 4):
        came = [row for row in range(6) if LEARNED[row] == number]
        before.append(grown(before[-1], *came))
    claims, parts = blocks(stays, rows)
    went = [(DIGESTS[row].hex(), LEARNED[row]) for row in gone]
    return RowsClaim(claims, went, since, before, rows_of(*stays)), parts


def judge(told: RowsClaim, rows: list[Rows]) -> list[Judgement]:
    return check_rows(told, rows)


def names_of(found: list[Judgement]) -> list[str]:
    return [one.check.name for one in found if not one.check.passed]


@pytest.mark.parametrize("since", [0, 1, 2])
@pytest.mark.parametrize("gone", [(1,), (0, 3, 5), (0, 1, 2, 3, 4, 5)])
def test_true_claims_pass_with_the_digests_that_are_in_the_log(
    since: int, gone: tuple[int, ...]
) -> None:
    told, rows = claim(gone, since)
    before, after = judge(told, rows)
    assert before.check.name == "rows-before"
    assert after.check.name == "rows-after"
    assert (before.check.passed, after.check.passed) == (True, True)
    assert before.check.value == f"sha256 {told.before[-1]}"
    assert after.check.value == f"sha256 {told.after}"


def test_the_service_publishes_what_the_verifier_and_these_tests_compute() -> None:
    own = [0, 1, 4]
    rows = Rows(ROWS.codes[own], ROWS.labels[own])
    block = RowBlock([f"r{row}" for row in own], rows, SALTS[own], np.array([1, 1, 3]))
    assert ridge_rows.row_digests(block, ANNA) == [DIGESTS[row] for row in own]
    # As a view of other memory, too: digests are of values, not of how they lie.
    turned = replace(block, rows=Rows(np.asfortranarray(rows.codes), rows.labels))
    assert ridge_rows.row_digests(turned, ANNA) == [DIGESTS[row] for row in own]
    assert ridge_rows.rows_digest(DIGESTS[row] for row in (4, 0, 1)) == rows_of(0, 1, 4)
    before = rows_of(0, 1)
    assert ridge_rows.grown_digest(before, rows_of(4)) == grown(before, 4)


@given(st.lists(st.tuples(st.booleans(), st.integers(-1, 3)), max_size=6))
@settings(max_examples=40, deadline=None)
def test_rows_are_told_apart_by_the_version_they_came_with(
    drawn: list[tuple[bool, int]],
) -> None:
    """Whatever the order of versions in a block: each row counts with its own."""
    halves = [
        [i for i, (first, _) in enumerate(drawn) if first is side] for side in (True, False)
    ]
    told, parts, expected = [], [], dict[int, list[bytes]]()
    for own in halves:
        names, learned = [f"r{i}" for i in own], np.array([drawn[i][1] for i in own], np.int64)
        told.append(BlockClaim(*ANNA, names, SALTS[own], learned))
        parts.append(Rows(ROWS.codes[own], ROWS.labels[own]))
        for i in own:
            fields = (sha(f"r{i}".encode()), bytes(SALTS[i].tolist()))
            content = struct.pack("<q", ROWS.labels[i]), struct.pack(f"<{D}h", *ROWS.codes[i])
            owner = sha(ANNA[0].encode()), sha(ANNA[1].encode())
            digest = sha(b"lethe/row/v1\0", *owner, *fields, *content)
            expected.setdefault(drawn[i][1], []).append(digest)
    assert stored(told, parts) == {version: sorted(own) for version, own in expected.items()}


def changed(row: int, column: int, by: int) -> Rows:
    codes = ROWS.codes.copy()
    codes[row, column] += by
    return Rows(codes, ROWS.labels)


def moved(row: int, to: int) -> Rows:
    codes, labels = ROWS.codes.copy(), ROWS.labels.copy()
    codes[to], labels[to] = codes[row], labels[row]
    return Rows(codes, labels)


def relabelled(row: int) -> Rows:
    return Rows(ROWS.codes, np.where(np.arange(6) == row, (ROWS.labels + 1) % 3, ROWS.labels))


SPOILT_ROWS: dict[str, Callable[[], Rows]] = {
    "the erased one kept under another's id": lambda: moved(1, 2),
    "one code up by a unit": lambda: changed(0, 0, 1),
    "one code of the last row down": lambda: changed(5, D - 1, -1),
    "a label": lambda: relabelled(4),
    "two that stay changed places": lambda: Rows(
        ROWS.codes[[0, 1, 3, 2, 4, 5]], ROWS.labels[[0, 1, 3, 2, 4, 5]]
    ),
}


@pytest.mark.parametrize("since", [0, 2])
@pytest.mark.parametrize("name", SPOILT_ROWS)
def test_stored_rows_with_another_content(name: str, since: int) -> None:
    told, rows = claim(since=since, rows=SPOILT_ROWS[name]())
    assert names_of(judge(told, rows)) == ["rows-before", "rows-after"]
    # Nor does it help to publish the digest of what is stored.
    agreed = rows_of(0, 2, 3, 4, 5, rows=SPOILT_ROWS[name]())
    found = judge(replace(told, after=agreed), rows)
    assert names_of(found) == ["rows-before"]
    assert not found[0].undecided


def block_changed(**changes: Any) -> Callable[[RowsClaim], RowsClaim]:
    def change(told: RowsClaim) -> RowsClaim:
        return replace(told, blocks=[replace(told.blocks[0], **changes), *told.blocks[1:]])

    return change


FORGED: dict[str, tuple[Callable[[RowsClaim], RowsClaim], list[str]]] = {
    "nothing went": (lambda told: replace(told, gone=[]), ["rows-before"]),
    "another went": (
        lambda told: replace(told, gone=[(sha(b"another").hex(), 1)]),
        ["rows-before"],
    ),
    "one more went": (
        lambda told: replace(told, gone=[*told.gone, (sha(b"another").hex(), 1)]),
        ["rows-before"],
    ),
    "it went twice": (lambda told: replace(told, gone=[*told.gone] * 2), ["rows-before"]),
    "it came later": (
        lambda told: replace(told, gone=[(told.gone[0][0], 3)]),
        ["rows-before"],
    ),
    "it came after all": (
        lambda told: replace(told, gone=[*told.gone, (sha(b"another").hex(), 9)]),
        ["rows-before"],
    ),
    "the digest of before": (
        lambda told: replace(told, before=[*told.before[:-1], rows_of(0)]),
        ["rows-before"],
    ),
    "a digest between": (
        lambda told: replace(told, before=[rows_of(0), *told.before[1:]]),
        ["rows-before"],
    ),
    "a version is left out": (
        lambda told: replace(told, before=told.before[1:]),
        ["rows-before"],
    ),
    "before is no digest": (
        lambda told: replace(told, before=[*told.before[:-1], "x"]),
        ["rows-before"],
    ),
    "the digest of after": (lambda told: replace(told, after=rows_of(0)), ["rows-after"]),
    "another client": (block_changed(client="south"), ["rows-before", "rows-after"]),
    "another subject": (block_changed(subject="bert"), ["rows-before", "rows-after"]),
    "another id": (block_changed(records=["r0", "r9"]), ["rows-before", "rows-after"]),
    "ids change places": (block_changed(records=["r4", "r0"]), ["rows-before", "rows-after"]),
    "other salts": (
        block_changed(salts=np.zeros((2, 32), np.uint8)),
        ["rows-before", "rows-after"],
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_claims_are_refuted(name: str) -> None:
    spoil, expected = FORGED[name]
    told, rows = claim(since=1)
    found = judge(spoil(told), rows)
    assert names_of(found) == expected
    assert not any(one.undecided for one in found if not one.check.passed)


def test_a_contribution_launders_nothing() -> None:
    """The content moves before version 3, whose digest is the one of what is stored then."""
    altered = moved(0, 2)
    told, rows = claim(gone=(0,), since=2, rows=altered)
    forged = rows_of(0, 1, 2, 3, rows=altered)  # row 0 itself is as it was
    told = replace(told, before=[told.before[0], grown(forged, 4, 5)])
    told = replace(told, after=rows_of(1, 2, 3, 4, 5, rows=altered))
    assert names_of(judge(told, rows)) == ["rows-before"]
    # Nothing but the version before the contribution tells.
    assert not names_of(judge(replace(told, before=[forged, *told.before[1:]]), rows))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda told: replace(told, before=[None]),
        lambda told: replace(told, before=[None, *told.before[1:]]),
        lambda told: replace(told, before=[*told.before[:-1], None]),
        lambda told: replace(told, before=[]),
    ],
)
def test_a_version_without_a_digest_is_undecided(
    spoil: Callable[[RowsClaim], RowsClaim],
) -> None:
    told, rows = claim(since=1)
    before, after = judge(spoil(told), rows)
    assert (before.check.passed, before.undecided, after.check.passed) == (False, True, True)
    _, after = judge(replace(told, after=None), rows)
    assert (after.check.passed, after.undecided) == (False, True)


ODD: list[Callable[[RowsClaim], RowsClaim]] = [
    lambda told: replace(told, blocks=None),  # type: ignore[arg-type]
    lambda told: replace(told, blocks=told.blocks[:1]),
    block_changed(records=["r0"]),
    block_changed(records=["r0", "r4", "r5"]),
    block_changed(salts=np.zeros((2, 31), np.uint8)),
    block_changed(salts=np.zeros((1, 32), np.uint8)),
    block_changed(learned=np.zeros(1, np.int64)),
    block_changed(client=None),
]


@pytest.mark.parametrize("spoil", ODD)
def test_odd_claims_fail_and_never_raise(spoil: Callable[[RowsClaim], RowsClaim]) -> None:
    told, rows = claim()
    found = judge(spoil(told), rows)
    assert names_of(found) == ["rows-before", "rows-after"]
