"""The best of a node's candidates, compared as exact fractions of integers.

With counts L and R of the classes on both sides, of nL and nR rows, Gini's impurity is least
where (sum L^2) / nL + (sum R^2) / nR is largest (Breiman et al., CART, 1984). For two classes
and for regression the variance is least where (sL nR - sR nL)^2 / (nL nR) is largest, with sL
and sR the sums of targets. Ties go to the candidate that was drawn first.

Bounds: with n < 2^22 rows the numerator of Gini's fraction is below n^3 / 4 < 2^64 and the
denominator below 2^42; with |target| <= 2^20 each term of sL nR - sR nL is below 2^62. The
cross products, of 128 and 192 bits, are computed in words of 64 bits.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lethe.estimators.forest.draws import multiply

MAX_ROWS = 2**22 - 1
MAX_TARGET = 2**20

Counts = NDArray[Any]  # int64; the words are uint64
Word = Any
_CLOSE = 1e-9  # float64 decides if two scores differ by more, relatively; its error is 1e-15


@njit(cache=True)
def exceeds(a: Word, b: Word, c: Word, d: Word) -> bool:
    """Return a / b > c / d."""
    left_high, left_low = multiply(a, d)
    right_high, right_low = multiply(c, b)
    return left_high > right_high or (left_high == right_high and left_low > right_low)


@njit(cache=True)
def _square_times(a: Word, b: Word) -> tuple[Word, Word, Word]:
    """Return a^2 b in three words, the highest first."""
    high, low = multiply(a, a)
    carry, bottom = multiply(low, b)
    top, middle = multiply(high, b)
    total = middle + carry
    return top + np.uint64(total < middle), total, bottom


@njit(cache=True)
def square_exceeds(a: Word, b: Word, c: Word, d: Word) -> bool:
    """Return a^2 / b > c^2 / d."""
    top, middle, bottom = _square_times(a, d)
    other_top, other_middle, other_bottom = _square_times(c, b)
    if top != other_top:
        return top > other_top
    if middle != other_middle:
        return middle > other_middle
    return bottom > other_bottom


@njit(cache=True)
def is_pure(rows: int, total: Counts, classes: int) -> bool:
    """Return whether all rows of a node have the same target.

    total: counts of the classes, or (classes 0) the sums of the targets and of their squares.
    """
    if classes:
        return total.max() == rows
    size = np.uint64(abs(total[0]))
    high, low = multiply(size, size)
    other_high, other_low = multiply(np.uint64(rows), np.uint64(total[1]))
    return high == other_high and low == other_low


@njit(cache=True)
def best_candidate(
    rows: int, total: Counts, left: Counts, used: int, least: int, classes: int
) -> int:
    """Return the best of the candidates that leave `least` rows on both sides, -1 if none does.

    left (used, classes): counts of the classes to the left of each candidate; for classes 0
    (used, 2): number of rows to the left, sum of their targets.
    """
    there = np.flatnonzero(total) if classes else total[:0]  # most classes have no row here
    best, best_float = -1, 0.0
    best_over, best_under = np.uint64(0), np.uint64(1)
    for i in range(used):
        if classes:
            n_left, own, rest = 0, 0, 0
            for c in there:
                count = left[i, c]
                other = total[c] - count
                n_left += count
                own += count * count
                rest += other * other
        else:
            n_left, own, rest = left[i, 0], left[i, 1], 0
        n_right = rows - n_left
        if n_left < least or n_right < least:
            continue
        under = np.uint64(n_left * n_right)
        if classes:
            over = np.uint64(own) * np.uint64(n_right) + np.uint64(rest) * np.uint64(n_left)
            score = float(over) / float(under)
        else:
            over = np.uint64(abs(own * n_right - (total[0] - own) * n_left))
            score = float(over) * float(over) / float(under)
        if best < 0 or score > best_float * (1 + _CLOSE):
            better = True
        elif score < best_float * (1 - _CLOSE):
            better = False
        elif classes:
            better = exceeds(over, under, best_over, best_under)
        else:
            better = square_exceeds(over, under, best_over, best_under)
        if better:
            best, best_float, best_over, best_under = i, score, over, under
    return best
