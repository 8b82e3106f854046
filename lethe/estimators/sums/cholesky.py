"""Solves symmetric positive definite systems by operations whose order is fixed.

LAPACK's bits change with its build and its number of threads. Here each number comes from
additions, products, quotients and square roots of IEEE 754 in one order, compiled without
`fastmath`, which neither reorders nor fuses them: equal systems have equal solutions, bit for
bit, wherever float64 is IEEE's. It is a few times slower than LAPACK.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lethe.estimators.errors import EstimatorInputError

Floats = NDArray[np.float64]


def solve(matrix: Floats, right: Floats) -> Floats:
    """Return X (d, c) with matrix (d, d) X = right (d, c).

    The matrix must be symmetric, positive definite, with a diagonal near 1. Raises
    EstimatorInputError: rounding leaves it indefinite.
    """
    lower = matrix.copy()
    if not _factorise(lower):
        raise EstimatorInputError(
            "alpha: too small beside these features for a float64 solution: choose a larger one"
        )
    found = right.copy()
    _substitute(lower, found)
    return found


@njit(cache=True)
def _factorise(a: Floats) -> bool:
    """Write L with a = L Lᵀ into the rows of Lᵀ: row k of `a`, from the diagonal on."""
    for k in range(len(a)):
        if not a[k, k] > 0:
            return False
        root = np.sqrt(a[k, k])
        for j in range(k, len(a)):
            a[k, j] = a[k, j] / root
        for i in range(k + 1, len(a)):
            factor = a[k, i]
            for j in range(i, len(a)):
                a[i, j] -= factor * a[k, j]
    return True


@njit(cache=True)
def _substitute(a: Floats, x: Floats) -> None:
    for k in range(len(a)):
        for c in range(x.shape[1]):
            x[k, c] = x[k, c] / a[k, k]
        for i in range(k + 1, len(a)):
            for c in range(x.shape[1]):
                x[i, c] -= a[k, i] * x[k, c]
    for k in range(len(a) - 1, -1, -1):
        for i in range(k + 1, len(a)):
            for c in range(x.shape[1]):
                x[k, c] -= a[k, i] * x[i, c]
        for c in range(x.shape[1]):
            x[k, c] = x[k, c] / a[k, k]
