"""Matrix products on one BLAS.

NumPy and SciPy each bring an OpenBLAS with its own threads, which spin for a while after
each call: alternating between the two made a triangular solve 30 times slower on two cores.
LAPACK is SciPy's, hence so are the products here.
"""

import numpy as np
from scipy.linalg.blas import dgemm

from workers.arrays import IntMatrix, Matrix


def integer_product(left: Matrix, right: Matrix) -> IntMatrix:
    """Return left (m, k) @ right (k, n) as int64, for float64 matrices of integers.

    Exact if every partial sum stays below 2^53, which the caller must ensure.
    """
    product: Matrix = dgemm(1.0, right.T, left.T)  # (n, m) in Fortran order
    return product.T.astype(np.int64)
