"""Messages: exact sums and differences, and every refusal of impossible statistics."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge.oracle import only, random_rows, without
from tests.workers.methods.ridge.statistics.test_gram import Case, cases, rows_of, same
from workers.arrays import Rows
from workers.errors import ExactnessError, InfeasibleRemovalError, RefusedError
from workers.methods.ridge.statistics.factor import triangle
from workers.methods.ridge.statistics.gram import RidgeStatistics, accumulate
from workers.methods.ridge.statistics.message import (
    ImplausibleMessageError,
    Message,
    add_messages,
    check_message,
    check_plausible,
    check_rest,
    from_factor,
    semidefinite,
    stack_factors,
    subtract_message,
    summarise,
    tolerance,
    with_factor,
)


def message_of(rows: Rows, d: int, c: int, bits: int = 16) -> Message:
    return summarise(rows, d, c, bits=bits)


def equal(left: Message, right: Message) -> bool:
    return same(left.statistics, right.statistics) and np.array_equal(left.counts, right.counts)


@given(cases(), st.randoms(use_true_random=False), st.integers(1, 5))
@settings(deadline=None)
def test_messages_add_up_in_any_order_and_partition(
    case: Case, random: Random, parts: int
) -> None:
    rows, d, c = case
    order = list(range(len(rows)))
    random.shuffle(order)
    pieces = [only(rows, order[start::parts]) for start in range(parts)]
    messages = [message_of(piece, d, c) for piece in pieces]
    random.shuffle(messages)
    whole = add_messages(messages, bits=16)
    assert equal(whole, message_of(rows, d, c))
    assert same(whole.statistics, accumulate([rows], d, c))
    assert len(whole) == len(rows)
    check_message(whole, bits=16)


@given(cases(), st.data())
@settings(deadline=None)
def test_a_message_subtracted_was_never_added(case: Case, data: st.DataObject) -> None:
    rows, d, c = case
    gone = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    whole = message_of(rows, d, c)
    rest = subtract_message(whole, message_of(only(rows, gone), d, c), bits=16)
    assert equal(rest, message_of(without(rows, gone), d, c))
    check_rest(rest.statistics, bits=16)
    assert equal(add_messages([rest, message_of(only(rows, gone), d, c)], bits=16), whole)


@given(cases())
@settings(deadline=None)
def test_a_factor_stands_for_the_very_integers(case: Case) -> None:
    rows, d, c = case
    message = with_factor(message_of(rows, d, c), rows)
    assert message.factor is not None
    assert len(message.factor) == min(len(rows), d)
    check_message(message, bits=16)
    back = from_factor(message.factor, message.statistics.moment, message.counts, bits=16)
    assert equal(back, message)
    # As another BLAS may sum: last rows first.
    backwards = np.rint(message.factor[::-1].T @ message.factor[::-1])
    assert np.array_equal(backwards, message.statistics.gram)


@given(cases(), st.integers(1, 5))
@settings(deadline=None)
def test_factors_stack_to_one_triangle(case: Case, parts: int) -> None:
    rows, d, c = case
    pieces = [only(rows, range(start, len(rows), parts)) for start in range(parts)]
    messages = [with_factor(message_of(piece, d, c), piece) for piece in pieces]
    whole = add_messages(messages, bits=16)
    assert whole.factor is not None
    assert len(whole.factor) == min(len(rows), d)
    check_message(whole, bits=16)
    assert stack_factors([*messages, replace(messages[0], factor=None)]) is None


def test_a_triangle_holds_its_blocks_one_at_a_time() -> None:
    codes = random_rows(np.random.default_rng(0), 5000, 6, 2).codes.astype(np.float64)
    got = triangle([codes[:3000], codes[3000:]], 6)
    want = np.asarray(np.linalg.qr(codes, mode="r"))
    want *= np.sign(want.diagonal())[:, None]
    assert got.shape == (6, 6)
    assert np.allclose(got, want, rtol=1e-12, atol=1e-6)


def test_a_single_record_is_its_own_factor() -> None:
    rows = rows_of([[-3, 4, 5]], [1])
    message = with_factor(message_of(rows, 3, 2), rows)
    assert message.factor is not None
    assert np.allclose(message.factor, [[3, -4, -5]])  # the record, up to its sign


def signs(n: int, d: int) -> Rows:
    """Codes of ±q_max: every column as long as it can be."""
    codes = 32767 * (np.random.default_rng(0).integers(0, 2, size=(n, d)) * 2 - 1)
    return Rows(codes.astype(np.int16), np.zeros(n, dtype=np.int64))


@pytest.mark.parametrize(("n", "fine"), [(60, True), (10000, False), (12000, False)])
def test_a_factor_that_float64_cannot_hold_is_not_sent(n: int, fine: bool) -> None:
    # e is 0.0005; 0.124, which leaves nothing for the rounding of the factor; and 0.15.
    rows = signs(n, 100)
    message = message_of(rows, 100, 1)
    if fine:
        check_message(with_factor(message, rows), bits=16)
        return
    with pytest.raises(ExactnessError, match="send its upper triangle instead"):
        with_factor(message, rows)


def test_a_factor_that_float64_cannot_hold_is_not_read() -> None:
    rows = signs(12000, 100)
    message = message_of(rows, 100, 1)
    factor = np.asarray(np.linalg.qr(rows.codes.astype(np.float64), mode="r"))
    with pytest.raises(ExactnessError, match="send its upper triangle instead"):
        from_factor(factor, message.statistics.moment, message.counts, bits=16)


def test_factors_whose_sum_float64_cannot_hold_are_left_out_of_the_sum() -> None:
    rows = signs(5000, 100)
    message = with_factor(message_of(rows, 100, 1), rows)
    assert add_messages([message], bits=16).factor is not None
    whole = add_messages([message] * 3, bits=16)
    assert whole.factor is None
    assert len(whole) == 15000
    check_message(whole, bits=16)


def test_the_bound_of_the_evaluation_holds_and_is_met_by_the_stated_sizes() -> None:
    # (k + 4)·n·q² just below 2^49, every code at its largest: 1/8 is left for the QR's own.
    d, n = 12, 2**49 // (16 * 32767**2)
    rows = signs(n, d)
    message = with_factor(message_of(rows, d, 1), rows)
    assert message.factor is not None
    exact = message.statistics.gram.astype(object)
    scaled = [[int(x * 2**40) for x in row] for row in message.factor]
    truth = np.array(scaled, dtype=object)
    product = truth.T @ truth
    assert (
        max(abs(int(x) - (int(g) << 80)) for x, g in zip(product.flat, exact.flat, strict=True))
        < (1 << 80) * 3 // 8
    )


def test_another_batchs_rows_do_not_become_its_factor() -> None:
    rows = random_rows(np.random.default_rng(2), 9, 4, 2)
    with pytest.raises(RefusedError, match="inconsistent factor"):
        with_factor(message_of(rows, 4, 2), without(rows, [3]))
    with pytest.raises(RefusedError, match="wider than 2 rows"):
        with_factor(message_of(only(rows, [0, 1]), 4, 2), rows)


ROWS = rows_of(
    [[3, 0, 1], [-2, 0, 4], [5, 0, -6], [1, 0, 1]], [0, 0, 1, 0]
)  # column 1 is silent
D, C = 3, 3  # label 2 does not occur


def gram(message: Message, *changes: tuple[int, int, int]) -> Message:
    """With entries of G set."""
    changed = message.statistics.gram.copy()
    for i, j, value in changes:
        changed[i, j] = value
    return replace(message, statistics=replace(message.statistics, gram=changed))


def moment(message: Message, *changes: tuple[int, int, int]) -> Message:
    changed = message.statistics.moment.copy()
    for j, k, value in changes:
        changed[j, k] = value
    return replace(message, statistics=replace(message.statistics, moment=changed))


def counted(message: Message, counts: list[int], rows: int) -> Message:
    return replace(
        message,
        counts=np.array(counts, dtype=np.int64),
        statistics=replace(message.statistics, rows=rows),
    )


def shaped(message: Message, **changes: Any) -> Message:
    return replace(message, statistics=replace(message.statistics, **changes))


BAD: dict[str, tuple[Callable[[Message], Message], str]] = {
    "asymmetric": (lambda m: gram(m, (0, 2, 5)), "not symmetric"),
    "negative diagonal": (lambda m: gram(m, (2, 2, -54)), "diagonal entry .* negative"),
    "diagonal above n q²": (
        lambda m: gram(m, (0, 0, 4 * 127**2 + 1)),
        "exceeds 4 squares of 8",
    ),
    "an entry near -2^63": (
        lambda m: gram(m, (0, 2, -(2**63)), (2, 0, -(2**63))),
        "exceeds 4 squares",
    ),
    "counts of another sum": (
        lambda m: counted(m, [3, 2, 0], 4),
        "add up to the number of rows",
    ),
    "a negative count": (lambda m: counted(m, [4, 1, -1], 4), "add up to the number of rows"),
    "counts that wrap around": (
        lambda m: counted(m, [2**62, 2**62, 2**63 - 1], -3 + 2**31),
        "add up to the number of rows",
    ),
    "a moment of a label with no row": (lambda m: moment(m, (0, 2, 1)), "moment exceeds"),
    "a moment above its label's codes": (lambda m: moment(m, (0, 1, 128)), "moment exceeds"),
    "a moment near -2^63": (lambda m: moment(m, (0, 1, -(2**63))), "moment exceeds"),
    "Cauchy-Schwarz": (lambda m: moment(m, (0, 1, 7)), "Cauchy-Schwarz"),
    "a silent column with products": (
        lambda m: gram(m, (0, 1, 2), (1, 0, 2)),
        "zero on the diagonal",
    ),
    "an odd square": (lambda m: gram(m, (0, 0, 40)), "parity"),
    "a moment off by one": (lambda m: moment(m, (0, 0, 3)), "parity"),
    "indefinite": (lambda m: gram(m, (0, 2, -46), (2, 0, -46)), "not positive semidefinite"),
    "labels that the codes contradict": (
        # Each column keeps to Cauchy-Schwarz; the codes have rank 2 of 3 rows of label 0.
        lambda m: moment(m, (0, 0, -8), (2, 0, 6), (0, 1, 5), (2, 1, -6)),
        "not positive semidefinite",
    ),
    "too many rows": (lambda m: counted(m, [2**50, 1, 0], 2**50 + 1), "overflow int64"),
    "a residual below 0": (lambda m: replace(m, residual=-1.0), "residual"),
    "a residual that is no number": (lambda m: replace(m, residual=float("nan")), "residual"),
    "a residual above all rows": (lambda m: replace(m, residual=1e9), "residual"),
    "float64 integers": (
        lambda m: shaped(m, gram=m.statistics.gram.astype(np.float64)),
        "int64 arrays",
    ),
    "a count of rows that is no int": (lambda m: shaped(m, rows=4.0), "int64 arrays"),
    "a moment of another width": (
        lambda m: shaped(m, moment=m.statistics.moment[:, :2].copy()),
        "must be a square",
    ),
    "rows below 0": (lambda m: counted(m, [3, 1, 0], -4), "must be a square"),
    "no classes": (
        lambda m: replace(
            shaped(m, moment=m.statistics.moment[:, :0].copy()), counts=m.counts[:0].copy()
        ),
        "a row for each column",
    ),
    "another factor": (
        lambda m: replace(m, factor=np.eye(3)),
        "inconsistent factor",
    ),
    "a factor of NaN": (
        lambda m: replace(m, factor=np.full((1, 3), np.nan)),
        "NaN or infinity",
    ),
    "a huge factor": (lambda m: replace(m, factor=np.full((1, 3), 1e200)), "upper triangle"),
    "a factor wider than the rows": (
        lambda m: replace(m, factor=np.zeros((4, 3))),
        "wider than 4 rows",
    ),
    "a factor of other columns": (lambda m: replace(m, factor=np.zeros((1, 2))), "3 columns"),
    "a factor of float32": (
        lambda m: replace(m, factor=np.zeros((1, 3), dtype=np.float32)),
        "float64 matrix",
    ),
    "a square factor": (
        lambda m: replace(m, factor=np.ones((3, 3))),
        "not upper trapezoidal",
    ),
}


@pytest.mark.parametrize(("spoil", "reason"), BAD.values(), ids=BAD.keys())
def test_what_no_rows_have_is_refused(spoil: Callable[[Message], Message], reason: str) -> None:
    message = message_of(ROWS, D, C, bits=8)
    check_message(message, bits=8)
    with pytest.raises(RefusedError, match=reason):
        check_message(spoil(message), bits=8)


FACTORS: dict[str, tuple[np.ndarray, str]] = {
    "NaN": (np.array([[np.nan, 1.0]]), "NaN or infinity"),
    "infinity": (np.array([[np.inf, 1.0]]), "NaN or infinity"),
    "no integers": (np.array([[1.0, 0.5]]), "inconsistent factor"),
    "half of an odd integer": (np.array([[1.0, 1.0], [0.0, 0.6]]), "inconsistent factor"),
    "too large": (np.array([[1.0, 2.0**30]]), "send its upper triangle"),
    "overflow": (np.array([[1.0, 1e300]]), "send its upper triangle"),
    "wider than the rows": (np.zeros((3, 2)), "wider than 2 rows"),
    "not a triangle": (np.array([[1.0, 1.0], [1.0, 1.0]]), "not upper trapezoidal"),
    "a vector": (np.array([1.0, 1.0]), "2 columns"),
    "float32": (np.array([[1.0, 1.0]], dtype=np.float32), "float64"),
}


@pytest.mark.parametrize(("factor", "reason"), FACTORS.values(), ids=FACTORS.keys())
def test_a_factor_of_no_rows_is_refused(factor: np.ndarray, reason: str) -> None:
    moment_, counts = np.zeros((2, 1), dtype=np.int64), np.array([2])
    with pytest.raises(RefusedError, match=reason):
        from_factor(factor, moment_, counts, bits=16)


def test_no_rows_at_all_are_a_message_too() -> None:
    empty = message_of(only(ROWS, []), D, C)
    check_message(empty, bits=16)
    assert equal(add_messages([empty, empty], bits=16), empty)
    factored = with_factor(empty, only(ROWS, []))
    assert factored.factor is not None
    assert factored.factor.shape == (0, D)
    back = from_factor(factored.factor, empty.statistics.moment, empty.counts, bits=16)
    assert equal(back, empty)


@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_an_eigenvalue_below_twice_the_tolerance_is_always_refused(
    seed: int, d: int, rank: int
) -> None:
    # The Gram matrix of fewer rows than columns, and with a little less weight in a
    # direction v where it has none.
    rows = random_rows(np.random.default_rng(seed), min(rank, d - 1), d, 2)
    message = message_of(rows, d, 2)
    statistics, counts = message.statistics, message.counts
    assert semidefinite(statistics.gram, statistics.moment, counts)
    v = np.rint(np.linalg.svd(rows.codes.astype(np.float64))[2][-1] * 2**13).astype(np.int64)
    spoiled = statistics.gram - np.outer(v, v)
    diagonal = np.concatenate([statistics.gram.diagonal(), counts]).astype(np.float64)
    powers = np.ldexp(1.0, -((np.frexp(diagonal)[1] + 1) // 2))[:d]
    scaled = spoiled * powers * powers[:, None]
    assert float(np.linalg.eigvalsh(scaled)[0]) < -2 * tolerance(np.ones(d + 2))
    assert not semidefinite(spoiled, statistics.moment, counts)


@pytest.mark.parametrize(("least", "fine"), [(0, True), (-1, False), (-1000, False)])
def test_the_tolerance_decides_at_the_least_step(least: int, fine: bool) -> None:
    # Rows x and -x, one of each label: G = 2xxᵀ has an eigenvalue 0; one less is refused.
    rows = rows_of([[200, 100], [-200, -100]], [0, 0])
    message = message_of(rows, 2, 1)
    step = 2 * least  # keeps the parity
    spoiled = gram(message, (0, 0, 80000 + step), (1, 1, 20000 + step))
    if fine:
        check_plausible(spoiled, bits=16)
    else:
        with pytest.raises(ImplausibleMessageError, match="semidefinite"):
            check_plausible(spoiled, bits=16)


def test_a_residual_makes_room_for_a_sketch_and_no_more() -> None:
    message = gram(message_of(ROWS, D, C, bits=8), (0, 2, -46), (2, 0, -46))
    least = float(np.linalg.eigvalsh(message.statistics.gram.astype(np.float64))[0])
    assert least < -0.1
    check_plausible(replace(message, residual=20.0), bits=8)
    with pytest.raises(ImplausibleMessageError, match="semidefinite"):
        check_plausible(replace(message, residual=0.01), bits=8)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (rows_of([[3, 0, 1]] * 5, [0] * 5), "5 rows are to be forgotten, and only 4"),
        (rows_of([[9, 0, 1]], [0]), "was not part of this model"),
        (rows_of([[3, 0, 1]], [1]), "was not part of this model"),
        (rows_of([[3, 1, 1]], [0]), "was not part of this model"),
        (rows_of([[5, 0, -6], [5, 0, -6]], [1, 1]), "was not part of this model"),
        (rows_of([[-3, 0, 4]], [0]), "was not part of this model"),
    ],
    ids=["too many", "diagonal", "label", "silent column", "twice", "indefinite"],
)
def test_a_rest_that_cannot_be_is_infeasible(rows: Rows, reason: str) -> None:
    whole, part = message_of(ROWS, D, C, bits=8), message_of(rows, D, C, bits=8)
    with pytest.raises(InfeasibleRemovalError, match=reason):
        subtract_message(whole, part, bits=8)


def test_sums_beyond_int64_and_other_shapes_are_refused() -> None:
    message = message_of(ROWS, D, C)
    large = counted(message, [2**33 - 2, 0, 0], 2**33 - 2)
    with pytest.raises(ExactnessError, match="overflow int64"):
        add_messages([large, large], bits=16)
    other = message_of(rows_of([[1, 2]], [0]), 2, 3)
    with pytest.raises(RefusedError, match="different numbers of columns"):
        add_messages([message, other], bits=16)
    with pytest.raises(RefusedError, match="different numbers of columns"):
        subtract_message(message, other, bits=16)


def test_a_message_cannot_be_modified() -> None:
    message = with_factor(message_of(ROWS, D, C), ROWS)
    assert message.factor is not None
    for array in (message.counts, message.factor, message.statistics.gram):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_a_difference_that_wraps_around_is_still_refused() -> None:
    most = (2**63 - 1) // 32767**2
    n = most // 2

    def one(value: int) -> Message:
        statistics = RidgeStatistics(
            np.array([[n * 32767**2, value], [value, n * 32767**2]]),
            np.zeros((2, 1), dtype=np.int64),
            n,
        )
        return Message(statistics, np.array([n]))

    whole = add_messages([one(n * 32767**2), one(n * 32767**2)], bits=16)
    with pytest.raises(InfeasibleRemovalError):
        subtract_message(whole, one(-n * 32767**2), bits=16)
