"""Frequent Directions: one pass over the rows, in 2r rows of memory.

Source: Liberty 2013, "Simple and deterministic matrix sketching"; Ghashami, Liberty,
Phillips, Woodruff 2016. Whenever the buffer is full its spectrum is lowered by σ_(r+1)².
The result is never above G in the PSD order and, for every p <= r,
‖G - FᵀF‖ <= (λ_(p+1) + … + λ_d) / (r + 1 - p): known before the rows are.
"""

import numpy as np
from scipy.linalg import svd

from workers.arrays import Matrix


def frequent_directions(rows: Matrix, rank: int) -> Matrix:
    """Return F (r, d), r <= rank, that sketches rowsᵀrows, for rows (k, d).

    O(k·d·rank). Up to `rank` rows come back as they are.
    """
    buffer = rows[:rank]
    for start in range(rank, len(rows), rank):
        buffer = shrink(np.vstack([buffer, rows[start : start + rank]]), rank)
    return buffer


def shrink(buffer: Matrix, rank: int) -> Matrix:
    """Return `rank` rows at most: the right singular vectors times (σ_i² - σ_(r+1)²)^½."""
    if len(buffer) <= rank:
        return buffer
    _, sizes, directions = svd(buffer, full_matrices=False)
    cut = sizes[rank] if len(sizes) > rank else 0.0
    # (σ - c)(σ + c) loses no digits where σ is near c.
    lowered = np.sqrt((sizes[:rank] - cut) * (sizes[:rank] + cut))
    kept: Matrix = lowered[:, None] * directions[:rank]
    return np.compress(lowered > 0, kept, axis=0)
