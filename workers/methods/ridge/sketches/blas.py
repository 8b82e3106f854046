"""Float64 products on SciPy's BLAS (`statistics.gram` says why)."""

import numpy as np
from scipy.linalg.blas import dgemm

from workers.arrays import Matrix


def product(left: Matrix, right: Matrix) -> Matrix:
    """Return left (m, k) @ right (k, n); zeros for k = 0, which BLAS refuses."""
    if 0 in left.shape or 0 in right.shape:
        return np.zeros((left.shape[0], right.shape[1]))
    result: Matrix = dgemm(1.0, right.T, left.T)
    return result.T
