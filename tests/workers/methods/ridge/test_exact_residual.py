"""The residual without rounding, against Python integers and fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge.oracle import random_rows
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_system import ExactResidual, base_bits
from workers.methods.ridge.statistics.gram import accumulate


def value_of(residual: ExactResidual) -> list[list[Fraction]]:
    _, d, m = residual.places.shape
    return [
        [
            sum(
                (
                    int(place[i, k]) * Fraction(2) ** (residual.base * (residual.low + at))
                    for at, place in enumerate(residual.places)
                ),
                Fraction(0),
            )
            for k in range(m)
        ]
        for i in range(d)
    ]


@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(-12, 3), st.integers(0, 60)), min_size=1, max_size=3),
    st.floats(1e-30, 1e30),
)
@settings(deadline=None)
def test_equals_the_residual_in_fractions(
    d: int, c: int, seed: int, moves: list[tuple[int, int]], penalty: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, 7, d, c)
    statistics = accumulate([rows], d, c)
    exponents = tuple(int(e) for e in rng.integers(-20, 21, d))
    config = RidgeConfig(d, c, exponents, 16, penalty)
    residual = ExactResidual(statistics.gram, statistics.moment, config)
    gram, expected = statistics.gram.tolist(), statistics.moment.tolist()
    for low, bits in moves:
        step = np.rint(rng.normal(size=(d, c)) * 2.0**bits)
        residual.subtract_product(step, low)
        weights = [
            [int(x) * Fraction(2) ** (residual.base * low) for x in row]
            for row in step.tolist()
        ]
        expected = [
            [
                expected[i][k]
                - sum(gram[i][j] * weights[j][k] for j in range(d))
                - Fraction(penalty) * Fraction(4) ** -exponents[i] * weights[i][k]
                for k in range(c)
            ]
            for i in range(d)
        ]
    assert value_of(residual) == expected
    rough, exponent = residual.approximate()
    for i in range(d):
        for k in range(c):
            got = Fraction(float(rough[i, k])) * Fraction(2) ** exponent
            assert abs(got - expected[i][k]) <= abs(expected[i][k]) / 2**48
    zero = [all(expected[i][k] == 0 for i in range(d)) for k in range(c)]
    assert residual.zero_columns().tolist() == zero


def test_an_exact_solution_leaves_exactly_zero() -> None:
    gram, moment = np.array([[3]]), np.array([[6]])
    residual = ExactResidual(gram, moment, RidgeConfig(1, 1, (0,), 16, 1.0))
    low = -2
    residual.subtract_product(np.array([[1.5 * 2.0 ** (2 * residual.base)]]), low)
    assert residual.zero_columns().all()
    assert value_of(residual) == [[0]]


@pytest.mark.parametrize("panel", [1, 3, 16])
def test_panels_do_not_show(panel: int) -> None:
    rng = np.random.default_rng(0)
    statistics = accumulate([random_rows(rng, 9, 8, 2)], 8, 2)
    config = RidgeConfig(8, 2, (-3,) * 8, 16, 0.1)
    step = np.rint(rng.normal(size=(8, 2)) * 2.0**50)
    values = []
    for rows in (8, panel):
        residual = ExactResidual(statistics.gram, statistics.moment, config, rows)
        residual.subtract_product(step, -3)
        values.append(value_of(residual))
    assert values[0] == values[1]


def test_a_gram_near_int64_is_still_exact() -> None:
    gram = np.array([[2**62, -(2**61) - 1], [-(2**61) - 1, 2**62 + 1]])
    config = RidgeConfig(2, 1, (0, 0), 16, 1.0)
    residual = ExactResidual(gram, np.array([[2**47], [-(2**47)]]), config)
    residual.subtract_product(np.array([[2.0**52 + 1], [-(2.0**52) + 1]]), -1)
    scale = Fraction(2) ** -residual.base
    x, y = (2**52 + 1) * scale, (-(2**52) + 1) * scale
    assert value_of(residual) == [
        [2**47 - (2**62 + 1) * x + (2**61 + 1) * y],
        [-(2**47) + (2**61 + 1) * x - (2**62 + 2) * y],
    ]


@pytest.mark.parametrize("d", [1, 2, 3, 63, 64, 65, 768, 1000, 4096, 10**5, 2**20])
def test_products_of_places_stay_below_2_to_53(d: int) -> None:
    base = base_bits(d)
    assert 1 <= base <= 24
    assert d * 4 ** (base - 1) <= 2**53
    assert base == 24 or d * 4**base > 2**53 / 2
