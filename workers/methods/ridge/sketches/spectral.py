"""An upper bound on the spectral norm of an integer matrix that trusts no eigenvalue solver.

‖A‖₂² = ‖A²‖₂ for symmetric A, and fl(A·A) differs from A² by at most γ·|A||A| in every
entry (γ = d·u/(1 - d·u), any order of summation), hence by γ·‖A‖_F² in norm:

    ‖A‖₂ <= (‖fl(A·A)‖₂ + γ·‖A‖_F²)^½,      and at last ‖·‖₂ <= min(‖·‖_F, ‖·‖_∞).

After p squarings this exceeds ‖A‖₂ by a factor of rank(A)^(1/2^(p+1)) at most.
"""

from collections.abc import Sequence
from math import ldexp, sqrt

import numpy as np
from scipy.linalg.blas import dsymm

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import RefusedError

UNIT = 2.0**-53
SQUARINGS = 4  # rank 768 at equal eigenvalues: 23 % above the norm
# Covers the roundings of the bound's own evaluation: norms of d² float64 numbers, d <= 2^15.
SLACK = 1 + 2.0**-20


def spectral_bound(
    matrix: IntMatrix, exponents: Sequence[int] | None = None, *, enough: float = 0.0
) -> float:
    """Return a number no less than ‖D·matrix·D‖₂, D = diag(2**exponents), None: identity.

    matrix (d, d) is symmetric int64. O(d³), or O(d²) if that gives a bound of at most
    `enough`; 0.0 if and only if it is zero. Raises RefusedError for steps outside 2^±200 or
    another number of them.
    """
    if not matrix.any():
        return 0.0
    steps = np.zeros(len(matrix), dtype=np.int64)
    if exponents is not None:
        if len(exponents) != len(matrix) or max(map(abs, exponents)) > 200:
            raise RefusedError("give one step within 2^±200 for each column")
        steps = np.array(exponents, dtype=np.int64)
    # float64 holds each entry to u relatively: within SLACK. Scaling is exact.
    scaled: Matrix = np.ldexp(np.ldexp(matrix.astype(np.float64), steps), steps[:, None])
    rough = _bound(scaled, 0) * SLACK
    if rough <= enough:
        return rough
    with threads_for(2 * len(matrix) ** 3):
        return _bound(scaled, SQUARINGS) * SLACK


def _bound(matrix: Matrix, squarings: int) -> float:
    """Return a number no less than ‖matrix‖₂ but for SLACK; matrix is symmetric."""
    peak = float(np.abs(matrix).max())
    exponent = int(np.frexp(peak)[1])
    # At most 1, so that squares cannot overflow; what underflows is far below γ.
    unit: Matrix = np.ldexp(matrix, -exponent)
    frobenius = float(np.sqrt(np.square(unit).sum()))
    bound = min(frobenius, float(np.abs(unit).sum(axis=0).max()))
    if squarings and bound > 0:
        square: Matrix = dsymm(1.0, unit.T, unit.T)
        gamma = 2 * len(unit) * UNIT  # twice: d·u < 1/2
        squared = _bound((square + square.T) / 2, squarings - 1)
        bound = min(bound, sqrt(squared + gamma * frobenius**2))
    return ldexp(bound, exponent)
