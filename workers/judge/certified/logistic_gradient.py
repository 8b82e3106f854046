"""A proven bound of ‖∇L(θ)‖ for a softmax head on given rows, in float64 with its rounding.

    L(θ) = (1/n) Σ_i [log Σ_k exp z_ik - z_iy] + (λ/2)‖θ‖²,      z_i = Θ(1, x_i)

is λ-strongly convex: ‖θ - θ*‖ <= ‖∇L(θ)‖ / λ for every θ, however it was computed. Rows and
weights are float32 and so exact in float64; u is 2^-53, γ_k = ku/(1 - ku) (Higham 2002, section
3.1). Rounding errors are added row by row, in the Euclidean norm:

1. a logit is off by γ_(p+1)(|W||x| + |b|), the shift by the largest by 2u|z|; all logits of a
   row by (γ_(p+1) + 2u√c)‖θ‖‖(1, x)‖, and its softmax by half of that (its Jacobian has no
   eigenvalue above 1/2);
2. exponentials, their sum, the quotient and the subtraction of the label, by 2^-46 + (c +
   3)·2^-52 at most: that exp is within 16 units of the last place is the assumption here (NumPy
   tests for 4), and underflow is far below it;
3. the sum over n rows, by γ_n Σ‖p_i - e_y‖‖(1, x_i)‖, in any order;
4. the division by n, λθ and their sum, by 4u(‖Σ‖/n + λ‖θ‖).
"""

from math import inf, isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels, Matrix
from workers.blas_threads import threads_for

Single = NDArray[np.float32]

UNIT = 2.0**-53
BLOCK = 1 << 12  # rows in float64 at a time


def distance_above(
    features: Single, labels: Labels, bias: Single, weight: Single, penalty: float
) -> float:
    """Return an upper bound of ‖θ - θ*‖; infinity if float64 cannot tell.

    features (n, p), bias (c,), weight (c, p) float32, labels (n,) within 0 to c - 1, n >= 1 and
    penalty > 0. The caller only needs to have checked the sizes.
    """
    (rows, inputs), classes = features.shape, len(bias)
    theta = np.column_stack([bias, weight]).astype(np.float64)
    length = _length(theta)
    total, drift, terms = np.zeros_like(theta), 0.0, 0.0
    logit_error = _gamma(inputs + 1) + 2 * UNIT * sqrt(classes)
    fixed = 2.0**-46 + (classes + 3) * 2.0**-52
    with threads_for(2 * min(rows, BLOCK) * theta.size), np.errstate(all="ignore"):
        for start in range(0, rows, BLOCK):
            part = features[start : start + BLOCK].astype(np.float64)
            slope, errors = _slopes(part, labels[start : start + BLOCK], theta)
            sizes = np.sqrt(1 + np.square(part).sum(1))
            total += np.column_stack([slope.sum(0), slope.T @ part])
            # numpy's softmax of a row may be off by this much, times ‖(1, x)‖ in the gradient.
            drift += float(((logit_error * length * sizes / 2 + fixed) * sizes).sum())
            terms += float((errors * sizes).sum())
        gradient = total / rows + penalty * theta
        rounding = (drift + _gamma(rows) * terms) / rows
        rounding += 4 * UNIT * (_length(total) / rows + penalty * length)
        # Computed lengths and sums of positive numbers are within this factor.
        slack = 1 + 8 * (theta.size + rows + 64) * UNIT
        bound = (_length(gradient) + rounding) / penalty * slack
    return bound if isfinite(bound) and rows * UNIT < 2.0**-20 else inf


def _slopes(part: Matrix, labels: Labels, theta: Matrix) -> tuple[Matrix, Matrix]:
    """Return p - e_y (m, c) for rows (m, p) by the softmax, and its lengths (m,)."""
    logits = part @ theta[:, 1:].T + theta[:, 0]
    powers = np.exp(logits - logits.max(1, keepdims=True))
    slope: Matrix = powers / powers.sum(1, keepdims=True)
    slope[np.arange(len(part)), labels] -= 1
    return slope, np.sqrt(np.square(slope).sum(1))


def _length(values: Matrix) -> float:
    return float(np.sqrt(np.square(values).sum()))


def _gamma(terms: int) -> float:
    return terms * UNIT / (1 - terms * UNIT)
