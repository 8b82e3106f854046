"""Statistics as one vector of integers modulo 2^64, where masks are uniform and cancel.

An int64 and its two's complement are the same 64 bits, so sums modulo 2^64 are the sums of
the integers, bit for bit, as long as those fit int64, which `statistics.gram` checks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.arrays import IntMatrix
from workers.secure_sum.errors import WrongLengthError

Vector = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """gram (d, d) symmetric, moment (d, c), counts (c,) of the labels, all int64; rows n.

    A member's sums are its added rows less its released ones: rows and counts may be
    negative.
    """

    gram: IntMatrix
    moment: IntMatrix
    counts: NDArray[np.int64]
    rows: int


def to_vector(sums: Sums) -> Vector:
    """Return upper triangle of G by rows, C by rows, counts, n: (d(d+1)/2 + dc + c + 1,).

    Raises WrongLengthError if the parts are of different shapes, or G is not symmetric.
    """
    d, c = sums.moment.shape
    if sums.gram.shape != (d, d) or sums.counts.shape != (c,):
        raise WrongLengthError("G, C and the label counts belong to different models")
    if not np.array_equal(sums.gram, sums.gram.T):
        raise WrongLengthError("G is not symmetric: its lower triangle would be lost")
    parts = [
        sums.gram[np.triu_indices(d)],
        sums.moment.ravel(),
        sums.counts,
        np.array([sums.rows], dtype=np.int64),
    ]
    return np.concatenate(parts).astype(np.int64).view(np.uint64)


def from_vector(vector: Vector, dimension: int, classes: int) -> Sums:
    """Return the sums of a vector; the inverse of `to_vector`.

    Raises WrongLengthError if the vector belongs to another shape.
    """
    d, c = dimension, classes
    triangle = d * (d + 1) // 2
    if vector.dtype != np.uint64 or vector.shape != (triangle + d * c + c + 1,):
        raise WrongLengthError("the vector has not the length of the round's model")
    entries = vector.view(np.int64)
    gram = np.zeros((d, d), dtype=np.int64)
    upper = np.triu_indices(d)
    gram[upper] = entries[:triangle]
    gram.T[upper] = gram[upper]
    moment = entries[triangle : triangle + d * c].reshape(d, c).copy()
    return Sums(gram, moment, entries[-c - 1 : -1].copy(), int(entries[-1]))
