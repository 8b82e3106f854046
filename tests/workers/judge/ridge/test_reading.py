"""The rows are read once, by block, and a malformed one fails only checks that need it."""

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.workers.judge.claims import ERASED, RETAINED, block, erasure, exact_claim
from workers.arrays import Rows
from workers.judge import registry
from workers.judge.base import Report
from workers.judge.ridge.claim import BlockClaim, ClaimedStatistics, ExactClaim, Mode
from workers.judge.ridge.reading import Reading

TRUE = erasure()


class Counted:
    """Blocks that count how often they were read."""

    def __init__(self, blocks: Iterable[BlockClaim]) -> None:
        self._blocks, self.begun = [*blocks], 0

    def __iter__(self) -> Iterator[BlockClaim]:
        self.begun += 1
        return iter(self._blocks)


def claim(mode: Mode, rows: Any = None) -> ExactClaim:
    whole = exact_claim(TRUE)
    found = TRUE.after.statistics
    ridge = replace(
        whole.ridge,
        mode=mode,
        statistics=ClaimedStatistics(found.gram, found.moment, found.rows),
        seed=bytes(range(32)),
    )
    return replace(whole, ridge=ridge, rows=whole.rows if rows is None else rows)


def judge(of: ExactClaim) -> Report:
    return registry.get("exact").verify(of)


def failed(report: Report) -> list[int]:
    return [check.number for check in report.checks if not check.passed]


@pytest.mark.parametrize("mode", ["full", "freivalds"])
def test_rows_are_read_once(mode: Mode) -> None:
    rows = Counted(exact_claim(TRUE).rows)
    assert judge(claim(mode, rows)).result == "PASS"
    assert rows.begun == 1


@pytest.mark.parametrize("mode", ["full", "freivalds"])
def test_a_refusal_reads_them_again_to_say_by_how_much(mode: Mode) -> None:
    rows = Counted(exact_claim(TRUE).rows)
    of = claim(mode, rows)
    assert of.ridge.statistics is not None
    gram = of.ridge.statistics.gram.copy()
    gram[0, 0] += 1
    forged = replace(of.ridge.statistics, gram=gram)
    report = judge(replace(of, ridge=replace(of.ridge, statistics=forged)))
    assert 5 in failed(report)
    assert report.checks[4].value.startswith("KL ")
    assert rows.begun == (2 if mode == "freivalds" else 1)


class Stream:
    """Many blocks of one row each, created as they are read."""

    def __init__(self, count: int, rows: int) -> None:
        self.count, self.rows, self.alive, self.most = count, rows, 0, 0

    def __iter__(self) -> Iterator[BlockClaim]:
        for number in range(self.count):
            codes = np.zeros((self.rows, 7), np.int16)
            self.alive += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(codes, self._dead)
            labels = np.zeros(self.rows, np.int64)
            salts = np.full((self.rows, 32), number % 256, np.uint8)
            names = [f"{number}-{place}" for place in range(self.rows)]
            rows = Rows(codes, labels)
            yield BlockClaim("c", "s", names, rows, salts, salts, np.ones(self.rows, int))

    def _dead(self) -> None:
        self.alive -= 1


@pytest.mark.parametrize("mode", ["full", "freivalds"])
@pytest.mark.parametrize("count", [64, 256])
def test_blocks_are_let_go_of_whatever_their_number(mode: Mode, count: int) -> None:
    rows = Stream(count, 1500)
    reading = Reading(claim(mode, rows), {"3-7"})
    assert (reading.rows, reading.stored) == (1500 * count, {"3-7"})
    assert sum(map(len, reading.leaves().parts())) == 1500 * count
    # A group of 4096 rows has three or four blocks, and nine groups may wait.
    assert rows.most <= (3 if mode == "full" else 45)


WHOLE = block(TRUE.retained, RETAINED)
ODD_STATISTICS = replace(WHOLE, rows=None)  # type: ignore[arg-type]
NO_SALT = replace(WHOLE, salts=np.zeros((37, 31), np.uint8))


def test_rows_without_a_salt_fail_the_set_and_not_the_statistics() -> None:
    assert failed(judge(claim("full", [NO_SALT]))) == [3]


@pytest.mark.parametrize("rows", [None, [None], [ODD_STATISTICS], 3])
@pytest.mark.parametrize("mode", ["full", "freivalds"])
def test_rows_that_cannot_be_read_fail_both(mode: Mode, rows: Any) -> None:
    report = judge(replace(claim(mode), rows=rows))
    assert report.result == "FAIL"
    assert {1, 2, 3} <= set(failed(report))


def test_an_erased_record_that_is_stored_fails_the_purge() -> None:
    codes = np.concatenate([TRUE.retained.codes, TRUE.rows.codes[:1]])
    rows = Rows(codes, np.concatenate([TRUE.retained.labels, TRUE.rows.labels[:1]]))
    blocks = [block(rows, [*RETAINED, ERASED[0]])]
    report = judge(claim("full", blocks))
    assert {1, 3, 4} <= set(failed(report))
    assert "1 erased rows stored" in report.checks[3].value
