from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzz
from workers.judge.ridge.residual import exact_product, to_integers

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, min_size=1, max_size=8))
@fuzz(300)
def test_floats_become_integers_exactly(values: list[float]) -> None:
    integers, exponent = to_integers(np.array([values]))
    back = [int(value) * Fraction(2) ** exponent for value in integers[0]]
    assert back == [Fraction(value) for value in values]


@pytest.mark.parametrize("bits", [3, 40, 62, 90, 300])
@pytest.mark.parametrize("d", [1, 2, 9])
def test_products_equal_those_of_python_integers(d: int, bits: int) -> None:
    rng = np.random.default_rng(d + bits)
    left = rng.integers(-(2**62), 2**62, size=(d, d))
    right = np.empty((d, 2), dtype=object)
    right[:] = [
        [int(rng.integers(-(2**60), 2**60)) * 2**bits >> 60 for _ in range(2)] for _ in range(d)
    ]
    if bits < 62:
        right = right.astype(np.int64)
    want = [
        [sum(int(left[i, j]) * int(right[j, k]) for j in range(d)) for k in range(2)]
        for i in range(d)
    ]
    assert exact_product(left, right).tolist() == want


def test_zero_and_minimal_integers() -> None:
    assert exact_product(np.zeros((2, 2), np.int64), np.zeros((2, 1), np.int64)).tolist() == [
        [0],
        [0],
    ]
    least = np.array([[-(2**63) + 1]])
    assert exact_product(least, least).tolist() == [[(2**63 - 1) ** 2]]
