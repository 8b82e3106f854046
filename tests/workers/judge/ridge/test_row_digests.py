"""Content cannot move unnoticed: each claim differs from a true one in one thing."""

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.lethe.certificates.tree_oracle import oracle_root
from workers.arrays import Rows
from workers.families.ridge import rows as ridge_rows
from workers.families.ridge.stored import RowBlock
from workers.judge.base import Judgement
from workers.judge.ridge.chain import Judging, Sets, check_contents, sets_of
from workers.judge.ridge.claim import (
    BlockClaim,
    ChainClaim,
    ContentsClaim,
    ExactClaim,
    RemovedLeaf,
)
from workers.judge.ridge.reading import CHUNK, LeafSort, leaves_of

D = 4
ANNA, BERT = ("north", "anna"), ("south", "bert")
# r0, r1 and r4 are anna's, the rest bert's; versions 1, 2 and 3 learned two each.
OWNER = [ANNA, ANNA, BERT, BERT, ANNA, BERT]
LEARNED = [1, 1, 2, 2, 3, 3]


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def by_hand(row: int, rows: Rows, salts: Any) -> bytes:
    client, subject = OWNER[row]
    return sha(
        *(b"lethe/row/v2\0", sha(client.encode()), sha(subject.encode())),
        bytes(salts[row].tolist()),
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


ID_SALTS = np.random.default_rng(4).integers(0, 256, size=(6, 32)).astype(np.uint8)
LEAVES = [hmac.digest(bytes(ID_SALTS[row]), b"r%d" % row, "sha256") for row in range(6)]


@dataclass(frozen=True, eq=False)
class Claim:
    """The parts of a claim that the checks of contents read."""

    blocks: list[BlockClaim]
    gone: list[RemovedLeaf]
    logged: ContentsClaim


def root_of(*places: int, rows: Rows = ROWS) -> str:
    """The root of the retained set of these records, in hex."""
    return oracle_root({LEAVES[row]: by_hand(row, rows, SALTS) for row in places}).hex()


def blocks(stays: list[int], rows: Rows = ROWS) -> list[BlockClaim]:
    found = []
    for owner in (ANNA, BERT):
        own = [row for row in stays if OWNER[row] == owner]
        part = Rows(rows.codes[own], rows.labels[own])
        names, learned = (
            [f"r{row}" for row in own],
            np.array([LEARNED[row] for row in own], int),
        )
        found.append(BlockClaim(*owner, names, part, SALTS[own], ID_SALTS[own], learned))
    return found


def claim(gone: tuple[int, ...] = (1,), since: int = 2, rows: Rows = ROWS) -> Claim:
    """An erasure of `gone` from version 3; since 0, 1 or 2: the version made by an erasure."""
    stays = [row for row in range(6) if row not in gone]
    before = [
        root_of(*(row for row in range(6) if LEARNED[row] <= number))
        for number in range(since, 4)
    ]
    went = [RemovedLeaf(LEAVES[row], DIGESTS[row], LEARNED[row]) for row in gone]
    logged = ContentsClaim(since, before, root_of(*stays))
    return Claim(blocks(stays, rows), went, logged)


def judge(told: Claim) -> list[Judgement]:
    nothing = ChainClaim(b"", 0, b"", 0, told.gone)

    def sets() -> Sets:
        return sets_of(nothing, LeafSort(*map(leaves_of, told.blocks)))

    whole = ExactClaim(None, told.blocks, nothing, [], contents=told.logged)  # type: ignore[arg-type]
    return [*check_contents(Judging(whole, None, sets))]


def names_of(found: list[Judgement]) -> list[str]:
    return [one.check.name for one in found if not one.check.passed]


@pytest.mark.parametrize("since", [0, 1, 2])
@pytest.mark.parametrize("gone", [(1,), (0, 3, 5), (0, 1, 2, 3, 4, 5)])
def test_true_claims_pass_with_the_roots_that_are_in_the_log(
    since: int, gone: tuple[int, ...]
) -> None:
    told = claim(gone, since)
    before, after = judge(told)
    assert before.check.name == "rows-before"
    assert after.check.name == "rows-after"
    assert (before.check.passed, after.check.passed) == (True, True)
    assert before.check.value == f"sha256 {told.logged.before[-1]}"
    assert after.check.value == f"sha256 {told.logged.after}"


def test_the_service_publishes_what_the_verifier_and_these_tests_compute() -> None:
    own = [0, 1, 4]
    rows = Rows(ROWS.codes[own], ROWS.labels[own])
    block = RowBlock(
        [f"r{row}" for row in own], rows, SALTS[own], ID_SALTS[own], np.array([1, 1, 3])
    )
    assert ridge_rows.row_digests(block, ANNA) == [DIGESTS[row] for row in own]
    # As a view of other memory too: digests depend on values, not on memory layout.
    turned = replace(block, rows=Rows(np.asfortranarray(rows.codes), rows.labels))
    assert ridge_rows.row_digests(turned, ANNA) == [DIGESTS[row] for row in own]
    found = ridge_rows.stored_digests(block, ANNA)
    assert [tuple(one) for one in found] == [
        (f"r{row}", LEARNED[row], DIGESTS[row]) for row in own
    ]


def test_a_stored_row_is_known_by_its_record_and_version() -> None:
    leaves = [
        leaf
        for found in map(leaves_of, claim().blocks)
        for leaf in zip(
            map(bytes, found.commitments),
            map(bytes, found.contents),
            found.learned,
            strict=True,
        )
    ]
    assert sorted(leaves) == sorted(
        (LEAVES[row], DIGESTS[row], LEARNED[row]) for row in (0, 2, 3, 4, 5)
    )


@pytest.mark.parametrize("count", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_commitments_are_hmacs_of_the_ids(count: int) -> None:
    rng = np.random.default_rng(count)
    salts = rng.integers(0, 256, size=(count, 32)).astype(np.uint8)
    names = [f"réc {row}" * (row % 40) for row in range(count)]
    rows = Rows(np.zeros((count, 1), np.int16), np.zeros(count, np.int64))
    one = BlockClaim("c", "s", names, rows, salts, salts, np.zeros(count, np.int64))
    assert [*map(bytes, leaves_of(one).commitments)] == [
        hmac.digest(bytes(salt), name.encode(), "sha256")
        for salt, name in zip(salts, names, strict=True)
    ]


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
    told = claim(since=since, rows=SPOILT_ROWS[name]())
    assert names_of(judge(told)) == ["rows-before", "rows-after"]
    # Nor does it help to publish the root of what is stored.
    agreed = root_of(0, 2, 3, 4, 5, rows=SPOILT_ROWS[name]())
    found = judge(logged(after=agreed)(told))
    assert names_of(found) == ["rows-before"]
    assert not found[0].undecided


def logged(**changes: Any) -> Callable[[Claim], Claim]:
    return lambda told: replace(told, logged=replace(told.logged, **changes))


def block_changed(**changes: Any) -> Callable[[Claim], Claim]:
    def change(told: Claim) -> Claim:
        return replace(told, blocks=[replace(told.blocks[0], **changes), *told.blocks[1:]])

    return change


OTHER = RemovedLeaf(sha(b"another"), sha(b"content"), 1)
BOTH = ["rows-before", "rows-after"]
FORGED: dict[str, tuple[Callable[[Claim], Claim], list[str]]] = {
    "nothing went": (lambda told: replace(told, gone=[]), BOTH[:1]),
    "another went": (lambda told: replace(told, gone=[OTHER]), BOTH[:1]),
    "one more went": (lambda told: replace(told, gone=[*told.gone, OTHER]), BOTH[:1]),
    "it went twice": (lambda told: replace(told, gone=[*told.gone] * 2), BOTH),
    "one that stays went": (
        lambda told: replace(told, gone=[*told.gone, RemovedLeaf(LEAVES[0], DIGESTS[0], 1)]),
        BOTH,
    ),
    "it had another content": (
        lambda told: replace(told, gone=[RemovedLeaf(LEAVES[1], DIGESTS[2], 1)]),
        BOTH[:1],
    ),
    "it had another commitment": (
        lambda told: replace(told, gone=[RemovedLeaf(OTHER.commitment, DIGESTS[1], 1)]),
        BOTH[:1],
    ),
    "it came later": (
        lambda told: replace(told, gone=[RemovedLeaf(LEAVES[1], DIGESTS[1], 3)]),
        BOTH[:1],
    ),
    "it came after all": (
        lambda told: replace(told, gone=[RemovedLeaf(LEAVES[1], DIGESTS[1], 9)]),
        BOTH[:1],
    ),
    "nobody knows when it came": (
        lambda told: replace(told, gone=[RemovedLeaf(LEAVES[1], DIGESTS[1], -1)]),
        BOTH[:1],
    ),
    "the root of before": (
        lambda told: logged(before=[*told.logged.before[:-1], root_of(0)])(told),
        BOTH[:1],
    ),
    "a root between": (
        lambda told: logged(before=[root_of(0), *told.logged.before[1:]])(told),
        BOTH[:1],
    ),
    "a version is left out": (
        lambda told: logged(before=told.logged.before[1:])(told),
        BOTH[:1],
    ),
    "before is no root": (
        lambda told: logged(before=[*told.logged.before[:-1], "x"])(told),
        BOTH[:1],
    ),
    "the root of after": (lambda told: logged(after=root_of(0))(told), BOTH[1:]),
    "another client": (block_changed(client="south"), BOTH),
    "another subject": (block_changed(subject="bert"), BOTH),
    "another id": (block_changed(records=["r0", "r9"]), BOTH),
    "ids change places": (block_changed(records=["r4", "r0"]), BOTH),
    "another commitment": (block_changed(id_salts=ID_SALTS[[0, 5]]), BOTH),
    "commitments change places": (block_changed(id_salts=ID_SALTS[[4, 0]]), BOTH),
    "one commitment of two rows": (
        block_changed(id_salts=ID_SALTS[[0, 0]], records=["r0", "r0"]),
        BOTH,
    ),
    "other salts": (block_changed(salts=np.zeros((2, 32), np.uint8)), BOTH),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_claims_are_refuted(name: str) -> None:
    spoil, expected = FORGED[name]
    found = judge(spoil(claim(since=1)))
    assert names_of(found) == expected
    assert not any(one.undecided for one in found if not one.check.passed)


def test_a_contribution_launders_nothing() -> None:
    """The content moves before version 3, whose digest is that of the rows stored then."""
    altered = moved(0, 2)
    told = claim(gone=(0,), since=2, rows=altered)
    forged = {LEAVES[row]: by_hand(row, altered, SALTS) for row in range(6)}
    forged[LEAVES[0]] = DIGESTS[0]  # row 0 itself is unchanged
    told = logged(before=[told.logged.before[0], oracle_root(forged).hex()])(told)
    told = logged(after=root_of(1, 2, 3, 4, 5, rows=altered))(told)
    assert names_of(judge(told)) == ["rows-before"]
    # Only the version before the contribution reveals it.
    earlier = {leaf: forged[leaf] for leaf in LEAVES[:4]}
    told = logged(before=[oracle_root(earlier).hex(), *told.logged.before[1:]])(told)
    assert not names_of(judge(told))


@pytest.mark.parametrize(
    "spoil",
    [
        logged(before=[None]),
        lambda told: logged(before=[None, *told.logged.before[1:]])(told),
        lambda told: logged(before=[*told.logged.before[:-1], None])(told),
        logged(before=[]),
    ],
)
def test_a_version_without_a_root_is_undecided(
    spoil: Callable[[Claim], Claim],
) -> None:
    told = claim(since=1)
    before, after = judge(spoil(told))
    assert (before.check.passed, before.undecided, after.check.passed) == (False, True, True)
    _, after = judge(logged(after=None)(told))
    assert (after.check.passed, after.undecided) == (False, True)


ODD: list[Callable[[Claim], Claim]] = [
    lambda told: replace(told, blocks=None),  # type: ignore[arg-type]
    block_changed(records=["r0"]),
    block_changed(records=["r0", "r4", "r5"]),
    block_changed(id_salts=ID_SALTS[:1]),
    block_changed(id_salts=np.zeros((2, 31), np.uint8)),
    block_changed(salts=np.zeros((2, 31), np.uint8)),
    block_changed(salts=np.zeros((1, 32), np.uint8)),
    block_changed(learned=np.zeros(1, np.int64)),
    block_changed(client=None),
]


@pytest.mark.parametrize("spoil", ODD)
def test_odd_claims_fail_and_never_raise(spoil: Callable[[Claim], Claim]) -> None:
    found = judge(spoil(claim()))
    assert names_of(found) == ["rows-before", "rows-after"]
