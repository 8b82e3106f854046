"""The bound of a float64 head against exact fractions, for heads of any origin."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge import oracle
from workers.arrays import Matrix
from workers.errors import RefusedError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_system import factorise
from workers.methods.ridge.statistics.gram import accumulate
from workers.methods.ridge.tracked_inverse import (
    empty_inverse,
    factor_batch,
    invert,
    penalty_exponent,
)
from workers.methods.ridge.upkeep import prove_head

D, C = 4, 3


@given(
    st.integers(0, 2**32 - 1),
    st.floats(1e-3, 1e5),
    st.lists(st.integers(-20, 20), min_size=D, max_size=D),
    st.floats(-200, 60),
)
@settings(max_examples=60, deadline=None)
def test_no_head_is_further_away_than_its_bound(
    seed: int, penalty: float, steps: list[int], size: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, 9, D, C)
    config = RidgeConfig(D, C, tuple(steps), 16, penalty)
    weights = oracle.solve(rows, config)
    near = np.array([[float(w) for w in row] for row in weights])
    head = near + rng.normal(size=(D, C)) * 2.0**size
    proven = prove_head(head, accumulate([rows], D, C), config)
    assert np.abs(proven.head - head).max() <= 2.0**-60 * np.abs(head).max()
    distance = oracle.squared_distance(proven.head[None], weights)
    assert distance <= Fraction(proven.bound) ** 2
    # And the bound is no looser than ‖(XᵀX + λI)(W - W*)‖/λ can be.
    reach = np.linalg.norm(np.ldexp(rows.codes.astype(float), steps), ord=2) ** 2 / penalty
    assert proven.bound <= float(distance) ** 0.5 * (reach + 1) * 1.001


def test_the_exact_head_has_the_bound_zero() -> None:
    rows = oracle.random_rows(np.random.default_rng(0), 1, 2, 1)
    silent = type(rows)(np.zeros((3, 2), np.int16), np.zeros(3, np.int64))
    config = RidgeConfig(2, 1, (0, 0), 16, 1.0)
    proven = prove_head(np.zeros((2, 1)), accumulate([silent], 2, 1), config)
    assert (proven.bound, proven.relative) == (0.0, 0.0)
    wrong = prove_head(np.zeros((2, 1)), accumulate([rows], 2, 1), config)
    assert wrong.bound > 0
    assert wrong.relative == float("inf")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e100])
def test_what_is_no_weight_is_refused(value: float) -> None:
    rows = oracle.random_rows(np.random.default_rng(0), 3, 2, 1)
    config = RidgeConfig(2, 1, (0, 0), 16, 1.0)
    with pytest.raises(RefusedError, match="rescale"):
        prove_head(np.array([[value], [0.0]]), accumulate([rows], 2, 1), config)


@pytest.mark.parametrize("rows", [1, D, D + 1, 20])
def test_a_factor_of_a_batch_has_its_products(rows: int) -> None:
    batch = oracle.random_rows(np.random.default_rng(rows), rows, D, C)
    config = RidgeConfig(D, C, (-15, -14, -13, -12), 16, 48.0)
    factor = factor_batch(batch, config)
    assert factor.roots.shape == (min(rows, D), D)
    features = np.ldexp(batch.codes.astype(float), np.array(config.exponents) - 2)  # 48 = 3·4²
    targets = np.eye(C)[batch.labels]
    assert np.allclose(factor.roots.T @ factor.roots, features.T @ features, rtol=1e-12)
    assert np.allclose(factor.roots.T @ factor.targets, features.T @ targets, atol=1e-12)


@pytest.mark.parametrize(
    ("penalty", "exponent"),
    [(1.0, 0), (3.999, 0), (4.0, 1), (0.999, -1), (0.25, -1), (0.2499, -2), (48.0, 2)],
)
def test_the_scale_of_the_inverse(penalty: float, exponent: int) -> None:
    config = RidgeConfig(3, 1, (-12, -13, -14), 16, penalty)
    assert penalty_exponent(config) == exponent
    rows = oracle.random_rows(np.random.default_rng(1), 9, 3, 1)
    features = np.ldexp(rows.codes.astype(float), np.array(config.exponents))
    want: Matrix = 4.0**exponent * np.linalg.inv(features.T @ features + penalty * np.eye(3))
    got = invert(factorise(accumulate([rows], 3, 1), config), config)
    assert np.allclose(got, want, rtol=1e-10)
    assert (got == got.T).all()
    empty = empty_inverse(config)
    assert np.array_equal(empty, np.eye(3) * 4.0**exponent / penalty)
    assert 0.25 < empty[0, 0] <= 1
