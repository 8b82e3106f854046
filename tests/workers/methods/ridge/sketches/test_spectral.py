"""The bound on the spectral norm, against elimination over the rationals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge.sketches import oracle
from workers.arrays import IntMatrix
from workers.errors import RefusedError
from workers.methods.ridge.sketches.kinds import spectral_bound


def symmetric(seed: int, d: int, largest: int) -> IntMatrix:
    upper = np.random.default_rng(seed).integers(-largest, largest + 1, size=(d, d))
    return np.triu(upper) + np.triu(upper, 1).T


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(0, 61),
    st.lists(st.integers(-30, 30), min_size=5, max_size=5),
)
@settings(max_examples=100, deadline=None)
def test_no_norm_exceeds_its_bound(seed: int, d: int, bits: int, steps: list[int]) -> None:
    matrix = symmetric(seed, d, 2**bits)
    bound = spectral_bound(matrix, steps[:d])
    assert oracle.norm_is_at_most(matrix, steps[:d], bound)
    if matrix.any():
        assert not oracle.norm_is_at_most(matrix, steps[:d], bound / d ** (1 / 32) * (1 - 1e-5))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("rank", [1, 2, 40])
def test_it_is_tight_for_low_rank_of_either_sign(rank: int, sign: int) -> None:
    factor = np.random.default_rng(rank).integers(-1000, 1001, size=(rank, 40))
    matrix = sign * factor.T @ factor
    norm = float(np.linalg.norm(factor.astype(float), 2)) ** 2
    assert norm * (1 - 1e-12) <= spectral_bound(matrix) <= norm * rank ** (1 / 32) * 1.00001


def test_equal_eigenvalues_are_its_worst_case() -> None:
    bound = spectral_bound(np.eye(200, dtype=np.int64) * 7)
    assert bound == pytest.approx(7, rel=1e-5)  # ‖·‖_∞ sees it
    orthogonal = np.array([[1]])
    while len(orthogonal) < 64:
        orthogonal = np.block([[orthogonal, orthogonal], [orthogonal, -orthogonal]])
    assert 8 <= spectral_bound(orthogonal) <= 8 * 64 ** (1 / 32) * 1.00001


def test_zero_is_zero_and_one_is_not() -> None:
    zero = np.zeros((9, 9), dtype=np.int64)
    assert spectral_bound(zero) == 0.0
    zero[3, 3] = 1
    assert 1 <= spectral_bound(zero) < 1.00001
    assert 4.0**-100 <= spectral_bound(zero, [-100] * 9) < 4.0**-100 * 1.00001


def test_a_bound_that_is_enough_is_true_and_not_sharpened() -> None:
    matrix = np.diag([3, -3, 3]) + np.ones((3, 3), dtype=np.int64)
    norm = float(np.linalg.norm(matrix.astype(float), 2))
    sharp, rough = spectral_bound(matrix), spectral_bound(matrix, enough=1e9)
    assert norm <= sharp < rough
    assert spectral_bound(matrix, enough=rough * 0.999) == sharp


@pytest.mark.parametrize("steps", [[0, 0], [0, 0, 201], [0, 0, -201]])
def test_steps_out_of_range_are_refused(steps: list[int]) -> None:
    with pytest.raises(RefusedError, match="give one from -200 to 200"):
        spectral_bound(np.ones((3, 3), dtype=np.int64), steps)
