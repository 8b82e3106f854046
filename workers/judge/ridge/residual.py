"""A proven bound on ‖(G + λI)W - C‖_F for float64 W, in a few matrix products.

G and W are split into limbs so that every float64 product of limbs is exact; λW is split into
two float64 without error (Dekker 1971). The residual is then a sum of float64 matrices, and
compensated summation (Ogita, Rump, Oishi 2005, Sum2) gives it with |error| <= u·|sum| +
γ²·Σ|terms|, which is added: about 1e-30 of the terms, compared with 1e-16 for a plain residual.

Equation i is divided by its step 2^e_i throughout: Σ_j G_ij V_j - C_i + λ 2^(-2 e_i) V_i for
V_j = 2^e_j W_j, since scaling by powers of two is exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.judge.ridge.claim import RidgeClaim
from workers.judge.ridge.statistics import Recomputed

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


ROUNDOFF = 2.0**-53
SAFE = 2.0**200  # products of two numbers within 1/SAFE and SAFE neither over- nor underflow
SLACK = 1 + 2.0**-20  # covers rounding of the bound's own evaluation, below 2^-25 of it
MAX_LIMBS = 24


@dataclass(slots=True)
class CompensatedSum:
    """Sum2 of matrices: high + low is the sum, sizes the sum of absolute values."""

    high: Matrix
    low: Matrix
    sizes: Matrix
    terms: int = 0

    def add(self, term: Matrix) -> None:
        """Add without losing the rounding error (Knuth's TwoSum)."""
        total = self.high + term
        shadow = total - self.high
        self.low += (self.high - (total - shadow)) + (term - shadow)
        self.sizes += np.abs(term)
        self.high = total
        self.terms += 1

    def magnitude(self) -> Matrix:
        """Return upper bounds of |sum|, except for rounding that SLACK covers."""
        gamma = 2 * self.terms * ROUNDOFF
        above: Matrix = np.abs(self.high + self.low) + gamma * gamma * self.sizes
        return above


def residual_norm(head: Matrix, claim: RidgeClaim, statistics: Recomputed) -> Fraction | None:
    """Return an upper bound of the residual's Frobenius norm for finite head (d, c).

    None if the numbers are too far apart for float64 to be exact.
    """
    steps = np.array(claim.exponents, dtype=np.int64)[:, None]
    if np.abs(steps).max() > 200:
        return None
    with np.errstate(over="ignore"):
        penalties = np.ldexp(float(claim.penalty), -2 * steps)
        scaled = np.ldexp(head, steps)
    largest_moment = max(int(statistics.moment.max()), -int(statistics.moment.min()))
    if not (_safe(penalties) and _safe(head) and _safe(scaled) and largest_moment < 2**53):
        return None
    limbs = _limbs(scaled, len(head), statistics.gram)
    if limbs is None:
        return None
    zero = np.zeros(head.shape)
    total = CompensatedSum(zero, zero.copy(), zero.copy())
    total.add(-statistics.moment.astype(np.float64))
    for part in _two_product(penalties, scaled):
        total.add(part)
    places, units, bits = limbs
    stacked, classes = np.hstack(places), head.shape[1]
    with threads_for(2 * statistics.gram.size * stacked.shape[1]):
        for index, limb in enumerate(_gram_limbs(statistics.gram, bits)):
            product = limb @ stacked
            for k, unit in enumerate(units):
                part = product[:, k * classes : (k + 1) * classes]
                total.add(np.ldexp(part, unit + bits * index))
    return _norm_above(np.ldexp(total.magnitude(), steps))


def _safe(values: Matrix) -> bool:
    sizes = np.abs(values[values != 0])
    return not sizes.size or bool(sizes.min() > 1 / SAFE and sizes.max() < SAFE)


def _norm_above(sizes: Matrix) -> Fraction:
    """Return an upper bound of the Frobenius norm, with every size 2^-20 larger."""
    largest = float(sizes.max())
    if largest == 0:
        return Fraction(0)
    # Relative to the largest, squares that underflow are below the slack together.
    norm = float(np.sqrt(np.square(sizes / largest).sum()))
    return Fraction(norm) * Fraction(largest) * Fraction(SLACK)


def _limbs(
    values: Matrix, inner: int, gram: IntMatrix
) -> tuple[list[Matrix], list[int], int] | None:
    """Return integer limbs of `values`, their units' exponents, and the bits of G's limbs.

    Both kinds are narrow enough that `inner` products of them sum to at most 2^53. None if that
    takes too many limbs.
    """
    together = 55 - (inner - 1).bit_length()  # balanced: each limb is at most half its base
    width = max(int(gram.max()), -int(gram.min())).bit_length() + 2
    count = -(-width // (together * 5 // 9))
    bits = max(2, -(-width // count))
    base = together - bits
    unit = int(np.frexp(np.abs(values).max())[1]) - base + 1
    limbs: list[Matrix] = []
    units: list[int] = []
    rest = values
    while rest.any() or not limbs:
        if len(limbs) == MAX_LIMBS:
            return None
        limb = np.rint(np.ldexp(rest, -unit))
        rest = rest - np.ldexp(limb, unit)  # exact: removes the top bits of `rest` only
        limbs.append(limb)
        units.append(unit)
        unit -= base
    return limbs, units, bits


def _gram_limbs(gram: IntMatrix, bits: int) -> Iterator[Matrix]:
    """Yield balanced limbs of G, lowest first: |limb| <= 2^(bits-1)."""
    half, rest = 1 << (bits - 1), gram
    while True:
        above = (rest + half) >> bits
        yield (rest - (above << bits)).astype(np.float64)
        if not above.any():
            return
        rest = above


def _two_product(left: Matrix, right: Matrix) -> tuple[Matrix, Matrix]:
    """Return (p, e) with left·right = p + e exactly."""
    product = left * right
    left_high, left_low = _split(left)
    right_high, right_low = _split(right)
    error = left_high * right_high - product
    error = error + left_high * right_low + left_low * right_high
    return product, error + left_low * right_low


def _split(values: Matrix) -> tuple[Matrix, Matrix]:
    """Return two halves of 26 bits each (Veltkamp)."""
    wide = values * (2.0**27 + 1)
    high = wide - (wide - values)
    return high, values - high
