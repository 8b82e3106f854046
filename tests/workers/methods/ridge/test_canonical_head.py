"""The head must be the correctly rounded solution: the oracle solves over the rationals."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tests.fuzz import fuzz
from tests.workers.methods.ridge import oracle
from workers import blas_threads
from workers.arrays import Rows
from workers.errors import PenaltyError, RefusedError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.canonical_head import CanonicalHead, canonical_head
from workers.methods.ridge.ridge_system import solve_float
from workers.methods.ridge.statistics.gram import accumulate

Problem = tuple[Rows, RidgeConfig]


def solved(rows: Rows, config: RidgeConfig) -> CanonicalHead:
    return canonical_head(
        accumulate([rows], config.dimension, config.classes, bits=config.bits), config
    )


def assert_correctly_rounded(rows: Rows, config: RidgeConfig) -> None:
    got = solved(rows, config)
    truth = oracle.solve(rows, config)
    assert got.head.tobytes() == oracle.head_of(truth).tobytes()
    assert oracle.squared_distance(got.witness, truth) <= Fraction(got.bound) ** 2


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Small problems of every awkward kind, well enough posed not to be refused."""
    n, d, c = draw(st.integers(1, 12)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["full", "tiny", "sparse", "twins", "silent", "repeated"]))
    codes = rng.integers(-32767, 32768, size=(n, d))
    if kind == "tiny":
        codes = rng.integers(-2, 3, size=(n, d))
    if kind == "sparse":
        codes = codes * (rng.random((n, d)) < 0.2)
    if kind == "twins":
        codes[:, -1] = codes[:, 0]
    if kind == "silent":
        codes[:, 0] = 0
    if kind == "repeated":
        codes[:] = codes[0]
    exponents = tuple(int(e) for e in rng.integers(-16, 3, size=d))
    penalty = draw(st.sampled_from([0.1, 1.0, 3.7, 2.0**20])) * 2.0 ** draw(st.integers(-2, 40))
    rows = Rows(codes.astype(np.int16), rng.integers(0, c, size=n))
    return rows, RidgeConfig(d, c, exponents, 16, penalty)


@given(problems())
@fuzz(150)
def test_every_entry_is_the_nearest_float32(problem: Problem) -> None:
    assert_correctly_rounded(*problem)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [1e-30, 1e-100, 1e-250, 1e300])
def test_extreme_penalties(penalty: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, 14, 3, 2)  # of full rank: no penalty is needed
    config = RidgeConfig(3, 2, (-8, -3, 0), 16, penalty)
    assert_correctly_rounded(rows, config)


def test_a_penalty_whose_witness_float64_cannot_hold_is_refused() -> None:
    rows = oracle.random_rows(np.random.default_rng(0), 14, 3, 2)
    with pytest.raises(PenaltyError, match="use a penalty of at least"):
        solved(rows, RidgeConfig(3, 2, (-8, -3, 0), 16, 5e-324))


@pytest.mark.parametrize("seed", range(6))
def test_steps_far_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, 9, 4, 2)
    exponents = tuple(int(e) for e in rng.integers(-160, 161, size=4))
    assert_correctly_rounded(rows, RidgeConfig(4, 2, exponents, 16, 0.37))


def test_more_classes_than_one_block() -> None:
    rows = oracle.random_rows(np.random.default_rng(2), 60, 3, 40)
    assert_correctly_rounded(rows, RidgeConfig(3, 40, (-12, -12, -12), 16, 0.5))


def tie(codes: list[list[int]], penalty: int) -> Problem:
    rows = Rows(np.array(codes, dtype=np.int16), np.zeros(len(codes), dtype=np.int64))
    return rows, RidgeConfig(len(codes[0]), 1, (0,) * len(codes[0]), 16, float(penalty))


@pytest.mark.parametrize("extra", [1, 3], ids=["down to even", "up to even"])
def test_a_midpoint_is_decided_although_no_bound_can(extra: int) -> None:
    codes = [[2**14]] * 1024 + [[extra]]
    square = 1024 * 2**28 + extra**2
    rows, config = tie(codes, 2**39 - square)
    truth = oracle.solve(rows, config)[0][0]
    assert truth == Fraction(2**24 + extra, 2**39)  # 25 bits, the last one set
    assert_correctly_rounded(rows, config)


def test_a_midpoint_beside_a_weight_that_never_ends() -> None:
    # The second column is no fraction of a power of two: the residual is never zero, yet the tie is decided.
    codes = [[2**14, 0]] * 1024 + [[1, 0], [0, 2]]
    square = 1024 * 2**28 + 1
    rows, config = tie(codes, 2**39 - square)
    truth = oracle.solve(rows, config)
    assert truth[0][0] == Fraction(2**24 + 1, 2**39)
    assert truth[1][0] == Fraction(2, 2**38 + 3)
    assert_correctly_rounded(rows, config)


def test_no_rows_is_a_head_of_plus_zeros() -> None:
    config = RidgeConfig(3, 2, (0, 0, 0), 16, 1.0)
    empty = Rows(np.empty((0, 3), dtype=np.int16), np.empty(0, dtype=np.int64))
    got = solved(empty, config)
    assert got.head.tobytes() == bytes(24)
    assert got.bound == 0.0
    assert got.witness.shape == (1, 3, 2)


def test_a_class_or_column_without_rows_is_plus_zero() -> None:
    rng = np.random.default_rng(0)
    rows = oracle.random_rows(rng, 30, 5, 3)
    codes = rows.codes.copy()
    codes[:, 2] = 0
    got = solved(Rows(codes, rows.labels), RidgeConfig(5, 4, (-14,) * 5, 16, 0.1))
    assert not got.head[2].view(np.uint32).any()
    assert not got.head[:, 3].view(np.uint32).any()
    assert np.count_nonzero(got.head) == 12


def test_a_true_zero_in_a_live_column_is_plus_zero() -> None:
    # Class 1 never meets column 0, and the columns never meet each other.
    codes = np.array([[3, 0], [5, 0], [0, 7]], dtype=np.int16)
    rows = Rows(codes, np.array([0, 0, 1]))
    assert_correctly_rounded(rows, RidgeConfig(2, 2, (0, 0), 16, 0.3))


def test_weights_below_2_to_minus_90_are_plus_zero() -> None:
    rows = Rows(np.array([[1], [-1], [-1]], dtype=np.int16), np.array([0, 1, 1]))
    for penalty in (2.0**89, 2.0**90, 2.0**91):
        assert_correctly_rounded(rows, RidgeConfig(1, 2, (0,), 16, penalty))
    got = solved(rows, RidgeConfig(1, 2, (0,), 16, 2.0**91))
    assert not got.head.view(np.uint32)[:, 0].any()


def test_threads_and_blocks_of_classes_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    rows = oracle.random_rows(rng, 400, 130, 50, largest=3000)
    config = RidgeConfig(130, 50, (-12,) * 130, 16, 0.01)
    statistics = accumulate([rows], 130, 50)
    expected = canonical_head(statistics, config).head.tobytes()
    monkeypatch.setattr(blas_threads, "PARALLEL_FROM", 0)
    floats = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert canonical_head(statistics, config).head.tobytes() == expected
            floats.append(solve_float(statistics, config))
    assert np.allclose(floats[0], floats[1], rtol=1e-8, atol=0)


def test_an_ill_posed_head_is_refused_with_a_penalty_that_works() -> None:
    rng = np.random.default_rng(0)
    column = rng.integers(-32767, 32768, size=(20, 1))
    twins = np.hstack([column, column, rng.integers(-32767, 32768, size=(20, 1))])
    rows = Rows(twins.astype(np.int16), rng.integers(0, 2, size=20))
    with pytest.raises(PenaltyError, match="at least") as refusal:
        solved(rows, RidgeConfig(3, 2, (0, 0, 0), 16, 1e-12))
    enough = float(str(refusal.value).rsplit(" ", 1)[1])
    assert_correctly_rounded(rows, RidgeConfig(3, 2, (0, 0, 0), 16, enough))


def test_a_weight_beyond_float32_is_refused() -> None:
    rows = Rows(np.array([[1], [1]], dtype=np.int16), np.array([0, 0]))
    with pytest.raises(RefusedError, match="exceeds float32"):
        solved(rows, RidgeConfig(1, 1, (-140,), 16, 1e-200))


def test_the_inputs_stay_as_they_were() -> None:
    rows = oracle.random_rows(np.random.default_rng(0), 20, 4, 2)
    statistics = accumulate([rows], 4, 2)
    gram, moment = statistics.gram.copy(), statistics.moment.copy()
    canonical_head(statistics, RidgeConfig(4, 2, (-10,) * 4, 16, 1.0))
    assert np.array_equal(gram, statistics.gram)
    assert np.array_equal(moment, statistics.moment)


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan"), float("inf")])
def test_a_penalty_is_a_positive_number(penalty: float) -> None:
    with pytest.raises(PenaltyError, match="positive"):
        RidgeConfig(1, 1, (0,), 16, penalty)


@pytest.mark.parametrize(
    ("dimension", "classes", "exponents", "bits"),
    [(0, 1, (), 16), (1, 0, (0,), 16), (2, 1, (0,), 16), (1, 1, (0,), 20), (1, 1, (500,), 16)],
)
def test_odd_configurations_are_refused(
    dimension: int, classes: int, exponents: tuple[int, ...], bits: int
) -> None:
    with pytest.raises(RefusedError):
        RidgeConfig(dimension, classes, exponents, bits, 1.0)
