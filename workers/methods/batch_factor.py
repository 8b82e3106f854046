"""A batch of rows as what a rank update takes: ΔG = UUᵀ and ΔC = UZ.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
section 5, "Constructing U via client QR factors". For k <= d rows the rows themselves
serve, without a rounding: Uᵀ = X, Z = Y. For more, the triangle of the QR factorisation
of [X Y] holds Uᵀ = R and Z = QᵀY, and its rank is d however many rows there are.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dgeqrf

from workers.arrays import Matrix, Rows
from workers.methods.base import RidgeConfig
from workers.methods.tracked_inverse import penalty_exponent


@dataclass(frozen=True, slots=True, eq=False)
class BatchFactor:
    """roots (r, d): Uᵀ, in units of 2^q as `tracked_inverse`; targets (r, c): Z."""

    roots: Matrix
    targets: Matrix


def factor_batch(rows: Rows, config: RidgeConfig) -> BatchFactor:
    """Return the factor of some rows, of rank min(k, d). The rows must have been checked."""
    shift = np.array(config.exponents) - penalty_exponent(config)
    roots: Matrix = np.ldexp(rows.codes.astype(np.float64), shift)
    targets: Matrix = np.eye(config.classes)[rows.labels]
    factor = BatchFactor(roots, targets)
    return factor if len(rows) <= config.dimension else _triangular(factor)


def _triangular(factor: BatchFactor) -> BatchFactor:
    d = factor.roots.shape[1]
    both = np.hstack([factor.roots, factor.targets])
    triangle, _, _, info = dgeqrf(both)
    if info:
        raise AssertionError(f"dgeqrf: argument {-info}")
    top = np.triu(triangle[:d])
    return BatchFactor(np.ascontiguousarray(top[:, :d]), np.ascontiguousarray(top[:, d:]))
