"""When is a float32 known, given a real number only to within a bound?

Rounding to float32 changes value at boundaries: the midpoints between neighbours, and
±2^-90, below which a weight becomes +0 (a true zero could otherwise never be told from a
tiny weight). A number is decided once it is further from every boundary than the bound.
A number *on* a boundary never is, so the definition gives boundaries a width: closer than
TIE = 2^-256 counts as on it, and goes to the even neighbour (at ±2^-90: not to zero).
With that, every number is decided at some finite precision and alike on every machine.
"""

import itertools
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Head, Matrix
from workers.errors import RefusedError

ZERO_BELOW = 2.0**-90
TIE = 2.0**-256
LARGEST = 2.0**128 - 2.0**104
OVERFLOW = 2.0**128  # its lower boundary, 2^128 - 2^103, is the end of float32
HOPELESS = 2.0**200  # no float32 is decided at such a bound
# Two float64 hold the sum of the terms to 2^-100 of itself; see `_sum`.
SUM_ERROR = 2.0**-95

Mask = NDArray[np.bool_]


def round_weights(terms: list[Matrix], bounds: Matrix, exact: Mask) -> Head | None:
    """Return the float32 head (d, m) of Σ terms ± bounds, or None if one is undecided.

    terms: float64 (d, m) each, their sum taken exactly; bounds (m,): how far each column
    may be from the truth; exact (d, m): entries known to be exactly zero.
    Raises RefusedError if a weight does not fit float32.
    """
    if not (bounds < HOPELESS).all():
        return None
    high, low = _sum(terms)
    width = 2.0 * (bounds + SUM_ERROR * np.abs(high) + TIE)  # twice: rounding in `gap`
    if (np.abs(high) - width > OVERFLOW).any():
        raise _overflow_error()
    if (np.abs(high) > OVERFLOW * 2).any():
        return None
    with np.errstate(over="ignore"):  # the last neighbour of float32 is infinity
        head = high.astype(np.float32)
    gap, flush = _gaps(head, high, low)
    head[flush] = 0.0  # -0 too: one encoding of zero
    open_entries = (gap <= width) & ~exact
    head[exact] = 0.0
    if not _worth_a_look(gap, bounds, open_entries):
        return None
    for i, j in zip(*np.nonzero(open_entries), strict=True):
        value = sum((Fraction(float(term[i, j])) for term in terms), Fraction(0))
        rounded = round_exactly(value, Fraction(float(bounds[j])))
        if rounded is None:
            return None
        head[i, j] = rounded
    if np.isinf(head).any():
        raise _overflow_error()
    return head


def round_exactly(value: Fraction, bound: Fraction) -> float | None:
    """Return the float32 of a number within `bound` of `value`, or None if undecided.

    Infinity stands for a number beyond float32.
    """
    magnitude = abs(value)
    zero_below, tie = Fraction(ZERO_BELOW), Fraction(TIE)
    nearest = float(np.float32(min(float(magnitude), LARGEST)))
    candidates = sorted({0.0, ZERO_BELOW, *_neighbours(nearest)})
    candidates = [c for c in candidates if c == 0 or c >= ZERO_BELOW]
    for below, above in itertools.pairwise(candidates):
        boundary = zero_below if below == 0 else (Fraction(below) + Fraction(above)) / 2
        distance = abs(magnitude - boundary)
        if distance + bound < tie:
            even = above if below == 0 or _is_odd(below) else below
            return _signed(even, value)
        if distance <= bound + tie:
            return None
    for below, above in itertools.pairwise(candidates):
        boundary = zero_below if below == 0 else (Fraction(below) + Fraction(above)) / 2
        if magnitude < boundary:
            return _signed(below, value)
    return _signed(candidates[-1], value)


def _neighbours(value: float) -> list[float]:
    """`value` and the float32 on either side; 2^128 stands above the largest."""
    centre = np.float32(value)
    with np.errstate(over="ignore"):
        above = float(np.nextafter(centre, np.float32(np.inf)))
    below = float(np.nextafter(centre, np.float32(0.0)))
    return [below, value, OVERFLOW if above == np.inf else above]


def _is_odd(value: float) -> bool:
    return bool(int(np.float32(value).view(np.uint32)) & 1)


def _signed(magnitude: float, value: Fraction) -> float:
    magnitude = float("inf") if magnitude >= OVERFLOW else magnitude
    return 0.0 if magnitude == 0 else magnitude if value > 0 else -magnitude


def _sum(terms: list[Matrix]) -> tuple[Matrix, Matrix]:
    """Return (high, low), high + low = Σ terms to within 2^-100 of it (Knuth's two-sum)."""
    high, low = terms[0], np.zeros_like(terms[0])
    for term in terms[1:]:
        total = high + term
        shadow = total - high
        low += (high - (total - shadow)) + (term - shadow)
        high = total
    return high, low


def _gaps(head: Head, high: Matrix, low: Matrix) -> tuple[Matrix, Mask]:
    """Return the distance of high + low to the nearest boundary, and what becomes zero."""
    centre = np.abs(head)
    with np.errstate(over="ignore"):
        above = np.nextafter(centre, np.float32(np.inf)).astype(np.float64)
    below = np.nextafter(centre, np.float32(0)).astype(np.float64)
    np.minimum(above, OVERFLOW, out=above)
    wide = np.minimum(centre.astype(np.float64), OVERFLOW)
    sign = np.where(high < 0, -1.0, 1.0)
    magnitude, rest = sign * high, sign * low
    # Midpoints of float32 are float64 numbers; near one the first difference is exact.
    to_above = ((wide + above) / 2 - magnitude) - rest
    to_above[np.isinf(centre)] = np.inf  # nothing beyond
    gap = np.minimum(to_above, (magnitude - (wide + below) / 2) + rest)
    to_zero = (magnitude - ZERO_BELOW) + rest
    flush = to_zero < 0
    return np.where(flush, -to_zero, np.minimum(gap, to_zero)), flush


def _worth_a_look(gap: Matrix, bounds: Matrix, open_entries: Mask) -> bool:
    """Whether exact arithmetic on the open entries may decide them all."""
    hopeless = open_entries & (np.abs(gap) < bounds / 2) & (bounds >= TIE)
    return not hopeless.any()


def _overflow_error() -> RefusedError:
    return RefusedError("a weight exceeds float32: rescale the features, or raise the penalty")
