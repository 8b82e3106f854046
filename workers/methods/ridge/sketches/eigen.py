"""Truncated eigendecomposition: the best approximation of rank r in the spectral norm.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
appendix A2.1. The neglected part has the norm λ_(r+1) (Eckart, Young 1936).
"""

import numpy as np
from scipy.linalg import eigh

from workers.arrays import Matrix
from workers.methods.ridge.sketches.blas import product

NOISE = 2.0**-52  # per column, relative to the largest eigenvalue: a solver's zero


def top_factor(matrix: Matrix, rank: int) -> Matrix:
    """Return F (r, d), r <= rank, whose FᵀF is the truncation of `matrix` (d, d) >= 0.

    Rows are √λ_i·v_iᵀ, largest first; O(d³). Directions without weight are dropped.
    """
    d = len(matrix)
    first = max(0, d - rank)
    values, vectors = eigh(matrix, subset_by_index=[first, d - 1])
    kept = values > d * NOISE * max(float(values[-1]), 0.0)
    rows: Matrix = (np.sqrt(values[kept]) * vectors[:, kept]).T[::-1]
    return rows


def top_factor_of_rows(rows: Matrix, rank: int) -> Matrix:
    """Return `top_factor` of rowsᵀrows, rows (k, d): O(k²d + k³), better for k < d.

    For u_i the eigenvectors of rows·rowsᵀ, u_iᵀ·rows is √λ_i·v_iᵀ without a division. For
    k <= rank this is a rotation of the rows: nothing is neglected.
    """
    k = len(rows)
    first = max(0, k - rank)
    if not k:
        return rows
    _, vectors = eigh(product(rows, rows.T), subset_by_index=[first, k - 1])
    return product(vectors.T[::-1], rows)
