"""Whether integers can be the statistics of rows, by necessary conditions.

Statistics that arrive without rows cannot be recomputed, but most forgeries, wrong masks and
corrupted bytes are not the sums of any rows. For codes q (n, d) and one-hot targets Y (n, c),
[q Y]ᵀ[q Y] is positive semidefinite; every |q_ij| is at most q_max; and since x² and x have
one parity, so have G_jj and the sum of row j of C.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.methods.ridge.statistics.quantiser import largest_code

Counts = NDArray[np.int64]

UNIT = 2.0**-53
PANEL = 128
SLACK = 1 + 2.0**-48  # of a comparison of squares in float64


def find_fault(
    gram: IntMatrix,
    moment: IntMatrix,
    rows: int,
    counts: Counts | None = None,
    *,
    bits: int,
    residual: float = 0.0,
) -> str | None:
    """Return why no `rows` rows can have these statistics, or None if they may.

    gram (d, d), moment (d, c), counts (c,) >= 0 int64; without counts each label may be on
    all rows. residual: rows whose Gram matrix is within it, in the spectral norm, suffice.
    O((d + c)³/3) and one float64 matrix of d + c columns. Real rows are never at fault.
    """
    q_max = largest_code(bits)
    if counts is None:
        counts = np.full(moment.shape[1], rows, dtype=np.int64)
    square = rows * q_max**2
    diagonal = gram.diagonal()
    if not (gram == gram.T).all():
        return "the Gram matrix is not symmetric"
    if diagonal.min() < 0:
        return "a diagonal entry of the Gram matrix is negative"
    if _largest(gram) > square + residual:
        return f"an entry of the Gram matrix exceeds {rows} squares of {bits}-bit codes"
    if (moment.max(axis=0) > counts * q_max).any() or (
        moment.min(axis=0) < -counts * q_max
    ).any():
        return "an entry of the moment exceeds the codes of that label's rows"
    reach = (diagonal + residual)[:, None] * counts.astype(np.float64)
    if (moment.astype(np.float64) ** 2 > reach * SLACK).any():
        return "the moment and the Gram matrix break the Cauchy-Schwarz inequality"
    if residual == 0:
        if gram[diagonal == 0].any():
            return "a column is zero on the diagonal of the Gram matrix but not beside it"
        if ((diagonal - moment.sum(axis=1)) & 1).any():
            return "a column's squares and its codes sum to numbers of different parity"
    if not semidefinite(gram, moment, counts, residual):
        return "the Gram matrix of codes and targets is not positive semidefinite"
    return None


def semidefinite(
    gram: IntMatrix, moment: IntMatrix, counts: Counts, residual: float = 0.0
) -> bool:
    """Whether J = [[G + residual·I, C], [Cᵀ, diag(counts)]] is positive semidefinite.

    With S the powers of two that take J's diagonal to [1/4, 1), and t = `tolerance`: True if
    no eigenvalue of SJS is negative, False if one is below -2t. In between it may be either:
    rows may weigh that much less than claimed in some direction, relative to the columns in
    it. 2t is 5e-11 at d + c = 250 and below 5e-8 at 10,000.
    """
    d = len(gram)
    diagonal = np.concatenate([gram.diagonal() + residual, counts.astype(np.float64)])
    scales = -((np.frexp(diagonal)[1] + 1) // 2)
    powers = np.where(diagonal > 0, np.ldexp(1.0, scales), 1.0)
    joint = np.zeros((len(powers), len(powers)))
    for i in range(0, d, PANEL):
        part = slice(i, min(i + PANEL, d))
        np.multiply(gram[part, i:], powers[i:d], out=joint[part, i:d])
        np.multiply(moment[part], powers[d:], out=joint[part, d:])
        joint[part] *= powers[part, None]
    scaled = diagonal * powers**2
    np.fill_diagonal(joint, scaled + tolerance(scaled))
    with threads_for(len(joint) ** 3 // 3):
        # The upper triangle of `joint` is the lower one of LAPACK's columns.
        _, info = dpotrf(joint.T, lower=True, clean=False, overwrite_a=True)
    return bool(info == 0)


def tolerance(diagonal: Matrix) -> float:
    """Return t such that Cholesky decides on A + tI for A with this diagonal.

    It runs to completion if A + tI has no eigenvalue below Δ = Σ γ_(m+1)·a_jj, and if it
    does, none is below -Δ (Rump 2006, "Verification of positive definiteness"). Rounding
    the integers to float64 moves eigenvalues by 2^-53·‖A‖_F <= 2^-53·trace. t is twice both.
    """
    m = len(diagonal)
    return 4 * (m + 4) * UNIT * float(diagonal.sum() + m * UNIT)


def _largest(values: IntMatrix) -> int:
    """Return max |value| as an integer that cannot overflow."""
    return max(int(values.max()), -int(values.min()))
