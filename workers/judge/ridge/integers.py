"""Exact arithmetic for the judge: float64 arrays as integers, and products without rounding."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for

Integers = NDArray[Any]  # int64, or Python integers in an object array


def to_integers(values: Matrix) -> tuple[Integers, int]:
    """Return (m, y) with values = m·2^y exactly, for finite float64 `values`.

    int64 if the numbers fit 62 bits, Python integers otherwise.
    """
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    if not whole.any():
        return whole, 0
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    lowest = int((exponents - 53 + trailing)[whole != 0].min())
    if int(exponents[whole != 0].max()) - lowest <= 62:
        return np.ldexp(values, -lowest).astype(np.int64), lowest
    shifts = np.where(whole == 0, 0, exponents - 53 - lowest)
    wide = whole.astype(object)
    left, right = np.maximum(shifts, 0), np.maximum(-shifts, 0)
    return (wide << left.astype(object)) >> right.astype(object), lowest


def exact_product(left: IntMatrix, right: Integers) -> Integers:
    """Return left (m, d) @ right (d, c) as Python integers, exactly.

    Both are split into digits of b bits with d·2^(2b) <= 2^53, so that float64 matrix products
    of digits are exact; digits are unsigned except for the last.
    """
    inner, columns = right.shape
    bits = (53 - inner.bit_length()) // 2
    right_digits = list(_digits(right, bits))
    stacked = np.hstack(right_digits)
    sums: dict[int, IntMatrix] = {}
    with threads_for(2 * left.size * stacked.shape[1]):
        for i, one in enumerate(_digits(left, bits)):
            product = (one @ stacked).astype(np.int64)
            for j in range(len(right_digits)):
                part = product[:, j * columns : (j + 1) * columns]
                sums[i + j] = sums[i + j] + part if i + j in sums else part
    total: Integers = sums[max(sums)].astype(object)
    for place in range(max(sums) - 1, -1, -1):
        total = (total << bits) + sums[place]
    return total


def _digits(values: Integers, bits: int) -> Iterator[Matrix]:
    mask = (1 << bits) - 1
    while values.size and max(int(values.max()), -int(values.min())) > mask:
        yield (values & mask).astype(np.float64)
        values = values >> bits
    yield values.astype(np.float64)
