"""Random projection: G seen through r random directions, one pass and no eigenvectors of G.

The estimate of rank r is G's best from GΩ alone, the Nyström approximation (GΩ)(ΩᵀGΩ)⁺(GΩ)ᵀ
(Halko, Martinsson, Tropp 2011, section 5.4; Tropp et al. 2017): never above G in the PSD
order, and its expected error is that of the best rank p < r - 1, times 1 + p/(r - p - 1),
plus a like share of the spectrum's tail. Random features ΩX alone, without the inverse,
would err by about ‖G‖·√(d/r).
"""

import hashlib

import numpy as np
from scipy.linalg import eigh

from workers.arrays import Matrix
from workers.methods.ridge.sketches.blas import product

# Directions of ΩᵀGΩ below this share of its largest are noise of GΩ: dividing by their
# roots would bring in errors of more than 2^-53 / 2^-20 of G.
NEGLIGIBLE = 2.0**-40


def projected_factor(matrix: Matrix, rank: int, seed: int) -> Matrix:
    """Return F (r, d), r <= rank, with FᵀF the estimate of `matrix` (d, d) >= 0."""
    directions = random_directions(len(matrix), min(rank, len(matrix)), seed)
    seen = product(matrix, directions)
    core = product(directions.T, seen)
    values, vectors = eigh((core + core.T) / 2)
    kept = values > NEGLIGIBLE * max(float(values[-1]), 0.0)
    turned = product(vectors[:, kept].T, seen.T)
    factor: Matrix = turned / np.sqrt(values[kept])[:, None]
    return factor


def random_directions(rows: int, columns: int, seed: int) -> Matrix:
    """Return numbers in (-1, 1) (rows, columns) from SHAKE-256, the same for ever.

    Odd multiples of 2^-16, evenly spread. Signs alone would do for real numbers, but small
    integers are orthogonal to a vector of signs all too often.
    """
    stream = hashlib.shake_256(f"lethe/sketch/{seed}/{rows}x{columns}".encode())
    drawn = np.frombuffer(stream.digest(2 * rows * columns), dtype="<u2").astype(np.float64)
    directions: Matrix = ((2 * drawn + 1) / 2.0**16 - 1).reshape(rows, columns)
    return directions
