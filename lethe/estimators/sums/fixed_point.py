"""Numbers as integers in steps of a power of two, and sums of their products without rounding.

Each number is rounded to the nearest multiple of 2^exponent by itself, so its code depends on
no other row. A code has 31 bits and a sign; it is cut into a high and a low half of 16 bits,
whose products float64 sums exactly (below 2^53 in a block), and blocks are added as int64.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.estimators.errors import EstimatorInputError

MAX_CODE = 2**31 - 1
MAX_EXPONENT = 160  # larger ones are a mistake, and their squares overflow float64
WEIGHT_BITS = 4  # weights are multiples of 1/16
MAX_WEIGHT = 2**12  # in sixteenths
MAX_ROWS = 2**20  # times 2^12 of weight times 2^30 stays below 2^63 (check_total)

Floats = NDArray[np.float64]
Whole = NDArray[Any]  # Python integers: sums of any size


def codes(name: str, numbers: Floats, exponent: int) -> NDArray[np.int64]:
    """Return numbers in steps of 2^exponent, rounded to nearest, halves to even.

    Raises EstimatorInputError: one is not finite, or beyond 2^31 steps; the message has `name`.
    """
    check_exponent(exponent)
    if not np.isfinite(numbers).all():
        raise EstimatorInputError(f"{name}: NaN or infinity: repair or drop the rows")
    with np.errstate(over="ignore"):
        steps = np.rint(np.ldexp(numbers, -exponent))
    if (np.abs(steps) > MAX_CODE).any():
        raise EstimatorInputError(
            f"{name}: a number is beyond {np.ldexp(float(MAX_CODE), exponent):.6g}, the most "
            f"at steps of 2^{exponent}: rescale by a factor that no row decided, or declare "
            "larger steps"
        )
    return steps.astype(np.int64)


def check_exponent(exponent: int) -> None:
    """Raise EstimatorInputError unless it is a whole number within ±160."""
    whole = isinstance(exponent, int | np.integer)
    if not whole or abs(exponent) > MAX_EXPONENT:
        raise EstimatorInputError(f"exponent: give a whole number within ±{MAX_EXPONENT}")


def whole_weights(weights: Floats, bits: int) -> NDArray[np.int64]:
    """Return weights (n,) in steps of 2^-bits.

    Raises EstimatorInputError: one is negative, not a multiple of the step, or above 2^12
    steps.
    """
    steps = np.ldexp(weights, bits)
    if not np.isfinite(steps).all() or (steps < 0).any() or (steps != np.rint(steps)).any():
        raise EstimatorInputError(
            f"sample_weight: give multiples of 2^-{bits}, not negative, so that sums are exact"
        )
    if (steps > MAX_WEIGHT).any():
        raise EstimatorInputError(f"sample_weight: at most {MAX_WEIGHT >> bits}")
    return steps.astype(np.int64)


def check_total(weight: int) -> None:
    """Raise EstimatorInputError if sums with this total weight, in steps, may exceed int64."""
    if weight > MAX_ROWS * MAX_WEIGHT:
        raise EstimatorInputError(
            f"the rows weigh more than {MAX_ROWS * MAX_WEIGHT >> WEIGHT_BITS} together, so "
            "that sums are not exact: use smaller weights or fewer rows"
        )


@dataclass(eq=False)
class Gram:
    """Sums over rows of w z zᵀ, in three parts: high high, high low, low low halves of codes.

    Each part (k, k) is int64 and a sum over rows: after adding and subtracting rows in any
    order, the parts are those of the remaining rows.
    """

    parts: list[NDArray[np.int64]]

    @classmethod
    def of_nothing(cls, width: int) -> "Gram":
        """Return the sums over no rows of `width` codes."""
        return cls([np.zeros((width, width), np.int64) for _ in range(3)])

    def add(self, rows: NDArray[np.int64], weights: NDArray[np.int64], sign: int) -> None:
        """Add (sign 1) or subtract (-1) rows (n, k) of codes with weights (n,)."""
        heaviest = int(weights.max(initial=1))
        block = min(2**14, 2**52 // (heaviest * 2**30))
        for start in range(0, len(rows), block):
            high, low = (
                half.astype(np.float64) for half in halves(rows[start : start + block])
            )
            heavy = weights[start : start + block, None].astype(np.float64)
            for part, product in zip(
                self.parts,
                ((heavy * high).T @ high, (heavy * high).T @ low, (heavy * low).T @ low),
                strict=True,
            ):
                part += sign * product.astype(np.int64)

    def entry(self, i: int, j: int) -> int:
        """Return the sum of w z_i z_j."""
        high, mixed, low = self.parts
        middle = int(mixed[i, j]) + int(mixed[j, i])
        return (int(high[i, j]) << 32) + (middle << 16) + int(low[i, j])

    def whole(self) -> Whole:
        """Return the sums of w z zᵀ (k, k) as Python integers."""
        high, mixed, low = (part.astype(object) for part in self.parts)
        found: Whole = (high << 32) + ((mixed + mixed.T) << 16) + low
        return found


def halves(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return h and l with rows = h 2^16 + l, both within ±2^15."""
    high = (rows + 2**15) >> 16
    return high, rows - (high << 16)
