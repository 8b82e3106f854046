"""No content moves between rows unseen: each claim here differs from a true one in one thing."""

import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.lethe.certificates.tree_oracle import oracle_root
from workers.arrays import Rows
from workers.families.ridge import rows as ridge_rows
from workers.families.ridge.blocks import RowBlock
from workers.judge.base import Judgement
from workers.judge.merkle import Tree
from workers.judge.retention import Trees
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


LEAVES = [sha(b"commitment", bytes([row])) for row in range(6)]


def root_of(*places: int, rows: Rows = ROWS) -> str:
    """The root of the retained set of these records, in hex."""
    return oracle_root({LEAVES[row]: by_hand(row, rows, SALTS) for row in places}).hex()


def blocks(stays: list[int], rows: Rows = ROWS) -> tuple[list[BlockClaim], list[Rows]]:
    claims, parts = [], []
    for owner in (ANNA, BERT):
        own = [row for row in stays if OWNER[row] == owner]
        names, learned = [f"r{row}" for row in own], np.array([LEARNED[row] for row in own])
        places = [LEAVES[row] for row in own]
        claims.append(BlockClaim(*owner, names, SALTS[own], learned, places))
        parts.append(Rows(rows.codes[own], rows.labels[own]))
    return claims, parts


def claim(
    gone: tuple[int, ...] = (1,), since: int = 2, rows: Rows = ROWS
) -> tuple[RowsClaim, list[Rows]]:
    """An erasure of `gone` from version 3; since 0, 1 or 2: which one an erasure had made."""
    stays = [row for row in range(6) if row not in gone]
    before = [
        root_of(*(row for row in range(6) if LEARNED[row] <= number))
        for number in range(since, 4)
    ]
    claims, parts = blocks(stays, rows)
    went = [(LEAVES[row], DIGESTS[row], LEARNED[row]) for row in gone]
    return RowsClaim(claims, went, since, before, root_of(*stays)), parts


def judge(told: RowsClaim, rows: list[Rows]) -> list[Judgement]:
    return check_rows(told, rows, Trees())


def names_of(found: list[Judgement]) -> list[str]:
    return [one.check.name for one in found if not one.check.passed]


@pytest.mark.parametrize("since", [0, 1, 2])
@pytest.mark.parametrize("gone", [(1,), (0, 3, 5), (0, 1, 2, 3, 4, 5)])
def test_true_claims_pass_with_the_roots_that_are_in_the_log(
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
    found = ridge_rows.stored_digests(block, ANNA)
    assert [tuple(one) for one in found] == [
        (f"r{row}", LEARNED[row], DIGESTS[row]) for row in own
    ]


def test_rows_that_the_checks_of_one_claim_share_are_hashed_into_one_tree() -> None:
    told, rows = claim()
    trees, made = Trees(), []
    honest = Tree.__init__

    def counted(self: Tree, *given: Any) -> None:
        made.append(given)
        honest(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tree, "__init__", counted)
        assert names_of(check_rows(told, rows, trees)) == []
        assert names_of(check_rows(told, rows, trees)) == []
    assert len(made) == 1


def test_a_stored_row_is_known_by_its_record_and_version() -> None:
    told, rows = claim()
    assert sorted(stored(told.blocks, rows)) == sorted(
        (LEAVES[row], DIGESTS[row], LEARNED[row]) for row in (0, 2, 3, 4, 5)
    )


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
    # Nor does it help to publish the root of what is stored.
    agreed = root_of(0, 2, 3, 4, 5, rows=SPOILT_ROWS[name]())
    found = judge(replace(told, after=agreed), rows)
    assert names_of(found) == ["rows-before"]
    assert not found[0].undecided


def block_changed(**changes: Any) -> Callable[[RowsClaim], RowsClaim]:
    def change(told: RowsClaim) -> RowsClaim:
        return replace(told, blocks=[replace(told.blocks[0], **changes), *told.blocks[1:]])

    return change


OTHER = sha(b"another"), sha(b"content"), 1
BOTH = ["rows-before", "rows-after"]
FORGED: dict[str, tuple[Callable[[RowsClaim], RowsClaim], list[str]]] = {
    "nothing went": (lambda told: replace(told, gone=[]), BOTH[:1]),
    "another went": (lambda told: replace(told, gone=[OTHER]), BOTH[:1]),
    "one more went": (lambda told: replace(told, gone=[*told.gone, OTHER]), BOTH[:1]),
    "it went twice": (lambda told: replace(told, gone=[*told.gone] * 2), BOTH),
    "one that stays went": (
        lambda told: replace(told, gone=[*told.gone, (LEAVES[0], DIGESTS[0], 1)]),
        BOTH,
    ),
    "it had another content": (
        lambda told: replace(told, gone=[(LEAVES[1], DIGESTS[2], 1)]),
        BOTH[:1],
    ),
    "it had another commitment": (
        lambda told: replace(told, gone=[(OTHER[0], DIGESTS[1], 1)]),
        BOTH[:1],
    ),
    "it came later": (
        lambda told: replace(told, gone=[(LEAVES[1], DIGESTS[1], 3)]),
        BOTH[:1],
    ),
    "it came after all": (
        lambda told: replace(told, gone=[(LEAVES[1], DIGESTS[1], 9)]),
        BOTH[:1],
    ),
    "nobody knows when it came": (
        lambda told: replace(told, gone=[(LEAVES[1], DIGESTS[1], -1)]),
        BOTH[:1],
    ),
    "the root of before": (
        lambda told: replace(told, before=[*told.before[:-1], root_of(0)]),
        BOTH[:1],
    ),
    "a root between": (
        lambda told: replace(told, before=[root_of(0), *told.before[1:]]),
        BOTH[:1],
    ),
    "a version is left out": (
        lambda told: replace(told, before=told.before[1:]),
        BOTH[:1],
    ),
    "before is no root": (
        lambda told: replace(told, before=[*told.before[:-1], "x"]),
        BOTH[:1],
    ),
    "the root of after": (lambda told: replace(told, after=root_of(0)), BOTH[1:]),
    "another client": (block_changed(client="south"), BOTH),
    "another subject": (block_changed(subject="bert"), BOTH),
    "another id": (block_changed(records=["r0", "r9"]), BOTH),
    "ids change places": (block_changed(records=["r4", "r0"]), BOTH),
    "another commitment": (block_changed(commitments=[LEAVES[0], OTHER[0]]), BOTH),
    "commitments change places": (block_changed(commitments=[LEAVES[4], LEAVES[0]]), BOTH),
    "one commitment of two rows": (block_changed(commitments=[LEAVES[0]] * 2), BOTH),
    "other salts": (block_changed(salts=np.zeros((2, 32), np.uint8)), BOTH),
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
    forged = {LEAVES[row]: by_hand(row, altered, SALTS) for row in range(6)}
    forged[LEAVES[0]] = DIGESTS[0]  # row 0 itself is as it was
    told = replace(told, before=[told.before[0], oracle_root(forged).hex()])
    told = replace(told, after=root_of(1, 2, 3, 4, 5, rows=altered))
    assert names_of(judge(told, rows)) == ["rows-before"]
    # Nothing but the version before the contribution tells.
    earlier = {leaf: forged[leaf] for leaf in LEAVES[:4]}
    told = replace(told, before=[oracle_root(earlier).hex(), *told.before[1:]])
    assert not names_of(judge(told, rows))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda told: replace(told, before=[None]),
        lambda told: replace(told, before=[None, *told.before[1:]]),
        lambda told: replace(told, before=[*told.before[:-1], None]),
        lambda told: replace(told, before=[]),
    ],
)
def test_a_version_without_a_root_is_undecided(
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
    block_changed(commitments=LEAVES[:1]),
    block_changed(commitments=[LEAVES[0], b""]),
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
