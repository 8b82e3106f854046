"""The fast bound against exact rationals and against the judge's own big-integer proof."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge import oracle
from workers.arrays import Matrix, Rows
from workers.judge.ridge.claim import RidgeClaim
from workers.judge.ridge.head import check_bound, prove_sum, proven_bound
from workers.judge.ridge.residual import CompensatedSum, residual_norm
from workers.judge.ridge.statistics import Recomputed, recompute
from workers.methods.ridge.base import RidgeConfig


def claim_of(config: RidgeConfig, head: Matrix) -> RidgeClaim:
    return RidgeClaim(
        config.dimension,
        config.classes,
        config.exponents,
        config.bits,
        config.penalty,
        "",
        head,
        head[:0, None],
        1.0,
    )


def squared_residual(head: Matrix, config: RidgeConfig, statistics: Recomputed) -> Fraction:
    steps = [Fraction(2) ** e for e in config.exponents]
    weights = [[Fraction(float(w)) for w in row] for row in head]
    total = Fraction(0)
    for i, row in enumerate(statistics.gram.tolist()):
        for k in range(config.classes):
            entry = Fraction(config.penalty) * weights[i][k]
            entry -= steps[i] * int(statistics.moment[i, k])
            for j, g in enumerate(row):
                entry += steps[i] * steps[j] * g * weights[j][k]
            total += entry**2
    return total


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(1, 3),
    st.floats(2.0**-20, 2.0**40),
    st.sampled_from([0.0, 1e-16, 1e-9, 1.0]),
)
@settings(deadline=None)
def test_the_norm_is_never_below_and_hardly_above(
    seed: int, d: int, c: int, penalty: float, off: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, 9, d, c)
    config = RidgeConfig(d, c, tuple(int(e) for e in rng.integers(-18, -8, d)), 16, penalty)
    statistics = recompute([rows], d, c, 16)
    truth = oracle.solve(rows, config)
    head = np.array([[float(weight) for weight in row] for row in truth])
    head += off * rng.normal(size=head.shape)
    claim = claim_of(config, head)
    norm = residual_norm(head, claim, statistics)
    assert norm is not None
    square = squared_residual(head, config, statistics)
    assert square <= norm**2
    assert norm**2 <= square * (1 + Fraction(1, 2**15)) + Fraction(1, 10**60)
    bound = proven_bound(head, claim, statistics)
    assert oracle.squared_distance(head[None], truth) <= bound**2
    slow = prove_sum(head[None], claim, statistics).norm()
    assert bound <= slow * (1 + Fraction(1, 2**15)) + Fraction(1, 10**60)


@pytest.mark.parametrize("d", [1, 2, 33, 300])
def test_wide_products_of_extreme_codes_stay_exact(d: int) -> None:
    # The largest Gram entries and weights of all signs; every limb is full.
    rng = np.random.default_rng(d)
    codes = (rng.choice([-1, 1], size=(400, d)) * 32767).astype(np.int16)
    rows = Rows(codes, rng.integers(0, 2, 400))
    config = RidgeConfig(d, 2, (-15,) * d, 16, 0.1)
    statistics = recompute([rows], d, 2, 16)
    head = rng.normal(size=(d, 2)) * 10.0 ** rng.integers(-12, 3, size=(d, 2))
    norm = residual_norm(head, claim_of(config, head), statistics)
    assert norm is not None
    square = squared_residual(head, config, statistics)
    assert square <= norm**2 <= square * (1 + Fraction(1, 2**15))


@pytest.mark.parametrize(
    ("head", "exponents"),
    [
        ([[1e300], [1.0]], (0, 0)),
        ([[1e-300], [1.0]], (0, 0)),
        ([[1.0], [1.0]], (160, 0)),
        ([[1.0], [2.0**-199]], (0, -1)),
        ([[2.0**190], [1.0]], (30, 0)),
    ],
    ids=["huge", "tiny", "steps", "product", "overflow"],
)
def test_numbers_too_far_apart_are_left_to_big_integers(
    head: list[list[float]], exponents: tuple[int, int]
) -> None:
    rows = oracle.random_rows(np.random.default_rng(0), 5, 2, 1)
    config = RidgeConfig(2, 1, exponents, 16, 0.5)
    statistics = recompute([rows], 2, 1, 16)
    weights = np.array(head)
    claim = claim_of(config, weights)
    fast = residual_norm(weights, claim, statistics)
    square = squared_residual(weights, config, statistics)
    assert fast is None or square <= fast**2
    bound = proven_bound(weights, claim, statistics)
    assert square / Fraction(config.penalty) ** 2 <= bound**2


def test_a_head_of_zeros_is_exact_only_without_a_moment() -> None:
    config = RidgeConfig(2, 1, (0, 0), 16, 0.5)
    head = np.zeros((2, 1))
    empty = recompute([], 2, 1, 16)
    assert check_bound(claim_of(config, head), empty).check.passed
    rows = oracle.random_rows(np.random.default_rng(0), 5, 2, 1)
    some = recompute([rows], 2, 1, 16)
    assert not check_bound(claim_of(config, head), some).check.passed


def test_what_compensation_loses_is_within_the_bound() -> None:
    total = CompensatedSum(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
    for term in (2.0**110, 2.0**55, 1.0, -(2.0**110), -(2.0**55)):
        total.add(np.array([[term]]))
    assert total.high + total.low == 0  # the true sum is 1
    assert total.magnitude() >= 1
