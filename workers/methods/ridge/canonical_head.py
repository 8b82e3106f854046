"""The correctly rounded ridge head: one float32 file for one set of rows, anywhere.

Iterative refinement with an exact residual (Wilkinson): factorise once in float64, then
V += solve(C - (G + λD²)V) until the a posteriori bound

    ‖W - W*‖ <= ‖(XᵀX + λI)W - XᵀY‖ / λ     (λ <= λ_min(XᵀX + λI), always)

is below the distance of every weight to a float32 rounding boundary. Nothing here trusts
the solver: a wrong factor only means that the bound does not shrink, and a refusal.
"""

import itertools
from dataclasses import dataclass
from fractions import Fraction
from math import frexp, inf, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Head, IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import PenaltyError, RefusedError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_system import (
    ExactResidual,
    RidgeSystem,
    factorise,
    not_below,
    sufficient_penalty,
)
from workers.methods.ridge.statistics.gram import RidgeStatistics

# When is a float32 known, given a real number only to within a bound?
#
# Rounding to float32 changes value at boundaries: the midpoints between neighbours, and ±2^-90,
# below which a weight becomes +0 (a true zero could otherwise never be told from a tiny
# weight). A number is decided once it is further from every boundary than the bound. A number
# *on* a boundary never is, so the definition gives boundaries a width: closer than TIE = 2^-256
# counts as on it, and goes to the even neighbour (at ±2^-90: not to zero). With that, every
# number is decided at some finite precision and alike on every machine.
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


# Covers every float64 rounding in `column_bounds`: (d + 60)·2^-48 below d = 2^17.
SLACK = 1 + 2.0**-30
KEEP_BITS = 44  # a float64 solve gains fewer: finer digits would be noise
WITNESS = 2.0**-64  # proven distance relative to the largest weight
MIN_GAIN = 3.0  # bits a step; at well-posed sizes a step gains 30 to 50
MAX_TERMS = 64


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalHead:
    """head (d, c) float32; witness (k, d, c) float64; ‖Σ witness - W*‖_F <= bound."""

    head: Head
    witness: Matrix
    bound: float


def canonical_head(statistics: RidgeStatistics, config: RidgeConfig) -> CanonicalHead:
    """Return the head that is a pure function of the statistics and the configuration.

    Correctly rounded as `round_weights` defines it. Works a block of classes at a
    time; the peak allocation is the witness plus about 1.2 times the size of G. Raises
    PenaltyError if refinement does not contract, RefusedError if a weight overflows float32.
    """
    with threads_for(config.dimension**3 // 3):
        return _canonical_head(statistics, config)


def _canonical_head(statistics: RidgeStatistics, config: RidgeConfig) -> CanonicalHead:
    d, c = statistics.moment.shape
    system = factorise(statistics, config) if statistics.moment.any() else None
    head = np.zeros((d, c), dtype=np.float32)
    terms: list[Matrix] = [np.zeros((d, c))]
    bound = 0.0
    width = max(16, d // 32)
    for start in range(0, c, width):
        block = slice(start, start + width)
        solved, head[:, block], bounds = _solve_block(
            statistics.gram, statistics.moment[:, block], config, system
        )
        while len(terms) < len(solved):
            terms.append(np.zeros((d, c)))
        for whole, part in zip(terms, solved, strict=False):
            whole[:, block] = part
        bound = norm_above([bound, *bounds])
    del system  # before the witness is copied: it is half the size of G
    return CanonicalHead(head, np.stack(terms), bound)


def _solve_block(
    gram: IntMatrix, moment: IntMatrix, config: RidgeConfig, system: RidgeSystem | None
) -> tuple[list[Matrix], Head, Matrix]:
    """Return (terms, head, bounds) for some columns of C."""
    residual = ExactResidual(gram, moment, config)
    # A silent column has a zero row in C too: its weights are exactly zero.
    silent = np.broadcast_to((gram.diagonal() == 0)[:, None], moment.shape)
    terms = [np.zeros(moment.shape)]
    size = inf
    while len(terms) <= MAX_TERMS:
        rough, exponent = residual.approximate()
        bounds = column_bounds(rough, exponent, config)
        bounds[residual.zero_columns()] = 0.0
        head = round_weights(terms, bounds, silent)
        if head is not None and _close_enough(bounds, head):
            return terms[1:], head, bounds
        if system is None:
            raise AssertionError("a zero moment has a zero head")
        rough = np.ldexp(rough, system.scales[:, None])
        last, size = size, log2(float(np.abs(rough).max())) + exponent
        if size > last - MIN_GAIN:
            break
        terms.append(_step(residual, system, rough, exponent, config))
    raise PenaltyError(
        "refinement does not contract: this penalty is too small for the Gram matrix; "
        f"use a penalty of at least {not_below(sufficient_penalty(gram, config))}"
    )


def _close_enough(bounds: Matrix, head: Head) -> bool:
    largest = float(np.abs(head).max())
    return largest == 0 or float(bounds.max()) <= WITNESS * largest


def column_bounds(residual: Matrix, exponent: int, config: RidgeConfig) -> Matrix:
    """Return b (m,) with ‖w_k - w*_k‖_2 <= b_k, for R = residual·2^exponent (d, m).

    Rounded up throughout; inf where no finite float64 bounds it.
    """
    scaled = np.ldexp(residual, np.array(config.exponents)[:, None])
    peak = np.abs(scaled).max(axis=0, initial=0.0)
    peak[peak == 0] = 2.0**-900  # what `approximate` may have lost
    norm = peak * np.sqrt(np.square(scaled / peak).sum(axis=0)) * SLACK
    mantissa, halvings = frexp(config.convexity)
    norm = (norm + 2.0**-700) / mantissa
    with np.errstate(over="ignore"):
        bounds: Matrix = np.ldexp(norm, exponent - halvings) * SLACK
    return np.nextafter(bounds, inf)


def norm_above(values: list[float]) -> float:
    """Return a number no less than the Euclidean norm of `values` (>= 0)."""
    peak = max(values)
    if peak == 0:
        return 0.0
    norm = sqrt(sum((float(value) / peak) ** 2 for value in values))
    return float(np.nextafter(peak * norm * SLACK, inf))


def _step(
    residual: ExactResidual,
    system: RidgeSystem,
    scaled: Matrix,
    exponent: int,
    config: RidgeConfig,
) -> Matrix:
    """Solve for one correction, take it off the residual, return it as weights (d, m)."""
    solution = system.solve(scaled)  # V = S·solution·2^exponent
    rows = np.frexp(np.abs(solution).max(axis=1))[1].astype(np.int64)
    used = np.abs(solution).max(axis=1) > 0
    scales = system.scales
    steps = np.array(config.exponents)
    if (exponent + (rows + scales - steps)[used]).max(initial=-2000) > 300:
        raise RefusedError(
            "a weight exceeds float32: rescale the features, or raise the penalty"
        )
    # One grid for the block: KEEP_BITS below the largest entry of the scaled solution,
    # at the finest scale in use, but never below what float64 can hold of a weight.
    finest = exponent + int(rows.max()) + int(scales[used].min()) - KEEP_BITS
    low = max(finest // residual.base, -((1074 - int(steps.max())) // residual.base))
    grid = residual.base * low
    whole = np.rint(np.ldexp(solution, (scales + exponent - grid)[:, None]))
    residual.subtract_product(whole, low)
    term: Matrix = np.ldexp(whole, (grid - steps)[:, None])
    return term
