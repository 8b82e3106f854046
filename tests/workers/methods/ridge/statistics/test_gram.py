"""Exact statistics: the oracle adds Python integers, one product at a time."""

import tracemalloc
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tests.workers.methods.ridge.oracle import joined, only, python_gram, random_rows, without
from workers import blas_threads
from workers.arrays import Rows
from workers.errors import ExactnessError, InfeasibleRemovalError, RefusedError
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    add,
    check_bounds,
    check_feasible,
    merge,
    subtract,
)

Case = tuple[Rows, int, int]


def same(left: RidgeStatistics, right: RidgeStatistics) -> bool:
    return (
        np.array_equal(left.gram, right.gram)
        and np.array_equal(left.moment, right.moment)
        and left.rows == right.rows
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """(rows, d, c), with extreme codes, silent columns and duplicates among them."""
    n, d, c = draw(st.integers(1, 30)), draw(st.integers(1, 9)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = random_rows(rng, n, d, c)
    shape = draw(st.sampled_from(["any", "extreme", "silent", "duplicate"]))
    codes = rows.codes.copy()
    if shape == "extreme":
        codes = np.where(codes > 0, 32767, -32767).astype(np.int16)
    if shape == "silent":
        codes[:, 0] = 0
    if shape == "duplicate":
        codes[:] = codes[0]
    return Rows(codes, rows.labels), d, c


@given(cases(), st.integers(1, 40))
@settings(deadline=None)
def test_equals_sums_of_python_integers(case: Case, block_rows: int) -> None:
    rows, d, c = case
    got = accumulate([rows], d, c, block_rows=block_rows)
    gram, moment = python_gram(rows.codes, rows.labels, c)
    assert got.gram.tolist() == gram
    assert got.moment.tolist() == moment
    assert got.rows == len(rows)


@given(cases(), st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 40))
@settings(deadline=None)
def test_order_partition_and_block_size_do_not_show(
    case: Case, random: Random, parts: int, block_rows: int
) -> None:
    rows, d, c = case
    order = list(range(len(rows)))
    random.shuffle(order)
    blocks = [only(rows, order[start::parts]) for start in range(parts)]
    whole = accumulate([rows], d, c)
    assert same(accumulate(blocks, d, c, block_rows=block_rows), whole)
    merged = accumulate([], d, c)
    for block in blocks:
        merged = merge(merged, accumulate([block], d, c))
    assert same(merged, whole)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_show(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(np.random.default_rng(0), 700, 150, 3)
    expected = accumulate([rows], 150, 3)
    monkeypatch.setattr(blas_threads, "PARALLEL_FROM", 0)
    with threadpool_limits(threads):
        assert same(accumulate([rows], 150, 3, block_rows=64 * threads), expected)


@given(cases(), st.data())
@settings(deadline=None)
def test_subtracting_is_never_having_added(case: Case, data: st.DataObject) -> None:
    rows, d, c = case
    gone = data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))
    before = accumulate([rows], d, c)
    kept_gram = before.gram.copy()
    after = subtract(before, only(rows, sorted(gone)))
    assert same(after, accumulate([without(rows, sorted(gone))], d, c))
    assert np.array_equal(before.gram, kept_gram)
    assert same(add(after, only(rows, sorted(gone))), before)


def test_sums_over_blocks_beyond_2_to_53_lose_no_bit() -> None:
    n = 9_000_001  # n·q² is odd and above 2^53: float64 alone must lose its last bit
    rows = Rows(np.full((n, 1), 32767, dtype=np.int16), np.zeros(n, dtype=np.int64))
    got = accumulate([rows], 1, 1, block_rows=2**20)
    assert n * 32767**2 > 2**53
    assert int(got.gram[0, 0]) == n * 32767**2
    assert int(got.moment[0, 0]) == n * 32767


def test_a_row_on_top_of_2_to_62_stays_exact() -> None:
    # One more unit than float64 can count, on top of a Gram matrix near 2^62.
    top = np.full((2, 1), 2**61, dtype=np.int64)
    huge = RidgeStatistics(np.array([[2**62]]), top.T[:, :1].copy(), 2**33 - 8)
    more = add(huge, Rows(np.array([[1]], dtype=np.int16), np.array([0])))
    assert int(more.gram[0, 0]) == 2**62 + 1
    assert int(more.moment[0, 0]) == 2**61 + 1


def test_a_record_left_in_is_visible() -> None:
    rows = random_rows(np.random.default_rng(1), 20, 4, 2)
    after = subtract(accumulate([rows], 4, 2), only(rows, [3]))
    assert not same(after, accumulate([without(rows, [3, 4])], 4, 2))


def test_summing_allocates_little_more_than_two_grams() -> None:
    rows = random_rows(np.random.default_rng(0), 100, 600, 3)
    accumulate([rows], 600, 3, block_rows=32)
    tracemalloc.start()
    summed = accumulate([rows], 600, 3, block_rows=32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * summed.gram.nbytes


@pytest.mark.parametrize("forgotten", [1, 40])
def test_a_removal_allocates_less_than_three_grams(forgotten: int) -> None:
    rows = random_rows(np.random.default_rng(0), 400, 300, 10)
    before = accumulate([rows], 300, 10)
    gone = only(rows, list(range(forgotten)))
    subtract(before, gone)  # imports and caches are not the removal's
    tracemalloc.start()
    subtract(before, gone)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * before.gram.nbytes


@pytest.mark.parametrize(
    ("rows", "bits", "block_rows", "fine"),
    [
        (0, 16, 1, True),
        ((2**63 - 1) // 32767**2, 16, 1, True),
        ((2**63 - 1) // 32767**2 + 1, 16, 1, False),
        ((2**63 - 1) // 127**2, 8, 1, True),
        ((2**63 - 1) // 127**2 + 1, 8, 1, False),
        (1, 16, (2**53 - 1) // 32767**2, True),
        (1, 16, (2**53 - 1) // 32767**2 + 1, False),
        (1, 16, 0, False),
    ],
)
def test_the_bounds_are_exact(rows: int, bits: int, block_rows: int, fine: bool) -> None:
    if fine:
        check_bounds(rows, bits, block_rows)
    else:
        with pytest.raises(ExactnessError, match="rows"):
            check_bounds(rows, bits, block_rows)


def rows_of(codes: list[list[int]], labels: list[int]) -> Rows:
    return Rows(np.array(codes, dtype=np.int16), np.array(labels))


@pytest.mark.parametrize(
    ("rows", "bits", "message"),
    [
        (rows_of([[1]], [0]), 16, "1 columns, the model 2"),
        (rows_of([[1, 2]], [2]), 16, r"outside 0\.\.1"),
        (rows_of([[1, 2]], [-1]), 16, r"outside 0\.\.1"),
        (rows_of([[-32768, 0]], [0]), 16, "exceeds 16 bits"),
        (rows_of([[0, 128]], [0]), 8, "exceeds 8 bits"),
        (rows_of([[0, 0]], [0]), 20, "choose 8 to 16"),
    ],
    ids=["columns", "label above", "label below", "code -2^15", "code of 8 bits", "width"],
)
def test_odd_rows_are_refused(rows: Rows, bits: int, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        accumulate([rows], 2, 2, bits=bits)


def test_learning_beyond_int64_is_refused() -> None:
    most = (2**63 - 1) // 32767**2
    one = np.ones((1, 1), dtype=np.int64)
    full = RidgeStatistics(one, one, most - 1)
    assert add(full, rows_of([[1]], [0])).rows == most
    with pytest.raises(ExactnessError, match="overflow int64"):
        add(full, rows_of([[1], [1]], [0, 0]))


@pytest.mark.parametrize(
    ("codes", "labels", "message"),
    [
        ([[1, 1]] * 3, [0] * 3, "3 rows are to be forgotten, and only 2"),
        ([[4, 0]], [0], "not all learned"),
        ([[0, 5]], [0], "not all learned"),
        ([[3, 0], [0, 1]], [1, 0], "not all learned"),
        ([[3, 0], [0, 0]], [0, 0], "not all learned"),
    ],
    ids=["too many", "negative diagonal", "silent column", "moment left", "rows left"],
)
def test_removals_that_cannot_be_are_refused(
    codes: list[list[int]], labels: list[int], message: str
) -> None:
    before = accumulate([rows_of([[3, 0], [1, 0]], [0, 0])], 2, 2)
    kept = before.gram.copy()
    with pytest.raises(InfeasibleRemovalError, match=message):
        subtract(before, rows_of(codes, labels))
    assert np.array_equal(before.gram, kept)


@given(cases())
@settings(deadline=None)
def test_every_real_set_of_rows_is_feasible(case: Case) -> None:
    rows, d, c = case
    check_feasible(accumulate([rows, joined([rows, rows])], d, c))


def test_statistics_cannot_be_modified() -> None:
    statistics = accumulate([rows_of([[1, 2]], [0])], 2, 1)
    with pytest.raises(ValueError, match="read-only"):
        statistics.gram[0, 0] = 7


def test_shapes_that_do_not_belong_together_are_not_merged() -> None:
    with pytest.raises(RefusedError, match="different numbers of columns"):
        merge(accumulate([], 2, 2), accumulate([], 2, 3))


@pytest.mark.parametrize(
    ("codes", "labels"),
    [
        (np.zeros((2, 2)), np.zeros(2, dtype=np.int64)),
        (np.zeros(2, dtype=np.int16), np.zeros(2, dtype=np.int64)),
        (np.zeros((2, 2), dtype=np.int16), np.zeros(3, dtype=np.int64)),
        (np.zeros((2, 2), dtype=np.int16), np.zeros(2, dtype=np.int32)),
    ],
    ids=["float codes", "a vector", "a label too many", "short labels"],
)
def test_rows_have_one_shape(codes: np.ndarray, labels: np.ndarray) -> None:
    with pytest.raises(RefusedError):
        Rows(codes, labels)
