"""Check 2: the head by the statistics that check 1 verified, in one way for each guarantee.

Of `exact`: the published head is the correctly rounded ridge solution of the retained rows.

No system is solved. The witness W, a sum of float64 matrices, is inserted into the normal
equations of the recomputed statistics; the residual R = (XᵀX + λI)W - XᵀY is computed in
integers, and since no eigenvalue of XᵀX + λI is below μ (λ, or λ/2 for unseen rows),

    ‖w_k - w*_k‖ <= ‖r_k‖ / μ       for each class k.

Each entry of the head must be what *every* real number that close rounds to: the nearest
float32, +0 below 2^-90; within 2^-256 of a boundary the even neighbour (at ±2^-90: not 0).
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CHECKS
from workers.arrays import Head, Matrix
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.ridge.claim import RidgeClaim
from workers.judge.ridge.residual import Integers, exact_product, residual_norm, to_integers
from workers.judge.ridge.statistics import Recomputed

ROUNDED = CHECKS["head-correctly-rounded"]
GRID = -320  # rounding boundaries, 2^-90 and 2^-256 are multiples of 2^GRID
MAX_TERMS = 64

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Proven:
    """The witness (d, c) and the bound of each column (c,), as integers times 2^grid."""

    weights: Integers
    bounds: Integers
    grid: int

    def norm(self) -> Fraction:
        """Return an upper bound of ‖W - W*‖_F."""
        square = sum(int(bound) ** 2 for bound in self.bounds)
        return Fraction(_root_above(square)) * Fraction(2) ** self.grid


def check_rounded(claim: RidgeClaim, statistics: Recomputed | None) -> Judgement:
    """Judge the head of `claim` by the statistics recomputed from the retained rows."""
    problem = _malformed_rounded(claim, statistics)
    if problem is not None or statistics is None:
        return judged(ROUNDED, f"{problem}", passed=False)
    proven = prove(claim, statistics)
    head: Head = claim.head.astype(np.float32, copy=False)  # nothing else is well-formed
    wrong, undecided = judge_entries(head, proven, statistics.gram.diagonal() == 0)
    bound = decimal_above(proven.norm())
    interval = ("0", bound)
    claimed = decimal_above(Fraction(claim.bound))
    threshold = f"at most {claimed}; 0 entries that are not the nearest float32"
    if wrong.any():
        value = f"{np.count_nonzero(wrong)} of {wrong.size} entries are not the rounding"
    elif undecided.any():
        value = f"{np.count_nonzero(undecided)} of {wrong.size} entries lie within the bound"
    elif proven.norm() > Fraction(claim.bound):
        value = f"the claimed bound is below the proven {bound}"
    else:
        return judged(ROUNDED, bound, passed=True, interval=interval, threshold=threshold)
    unsure = bool(undecided.any() and not wrong.any())
    return judged(
        ROUNDED, value, passed=False, interval=interval, threshold=threshold, undecided=unsure
    )


def convexity(claim: RidgeClaim, statistics: Recomputed) -> Fraction:
    """Return μ > 0, a lower bound of the eigenvalues of G + λI."""
    return Fraction(claim.penalty) / (1 if statistics.definite else 2)


def prove(claim: RidgeClaim, statistics: Recomputed) -> Proven:
    """Return the witness with the bound that its exact residual proves."""
    return prove_sum(claim.witness, claim, statistics)


def prove_sum(witness: Matrix, claim: RidgeClaim, statistics: Recomputed) -> Proven:
    """Return Σ witness (k, d, c) with the bound that its exact residual proves."""
    steps = np.array(claim.exponents, dtype=object)
    finest = int(min(claim.exponents))
    numerator, denominator = float(claim.penalty).as_integer_ratio()
    penalty_exponent = 1 - denominator.bit_length()
    terms = [to_integers(np.asarray(term, dtype=np.float64)) for term in witness]
    lowest = min(exponent for _, exponent in terms)
    grid = min(GRID, lowest)
    # Every part of the residual is an integer times 2^unit.
    unit = min(finest, 2 * finest + lowest, penalty_exponent + lowest)
    residual: Integers = -(statistics.moment.astype(object) << (steps - unit)[:, None])
    weights: Integers = np.zeros(statistics.moment.shape, dtype=object)
    for integers, exponent in terms:
        wide = integers.astype(object)
        weights = weights + (wide << (exponent - grid))
        scaled = wide << (steps - finest)[:, None]
        product = exact_product(statistics.gram, _narrow(scaled))
        residual = residual + (product << (steps + finest + exponent - unit)[:, None])
        residual = residual + ((wide * numerator) << (penalty_exponent + exponent - unit))
    # ‖r_k‖·2^unit / μ in units of 2^grid, rounded up twice.
    scale = Fraction(2) ** (unit - grid) / convexity(claim, statistics)
    squares = [int(total) for total in (residual * residual).sum(axis=0)]
    bounds = np.empty(len(squares), dtype=object)
    # Roots to 2^-64 of a unit: rounding up to a whole unit, where the residual has few, would
    # exceed what an honest solver leaves between its own bound and this one.
    roots = (Fraction(_root_above(square << 128), 1 << 64) for square in squares)
    bounds[:] = [_ceiling(root * scale) for root in roots]
    return Proven(weights, bounds, grid)


def judge_entries(head: Head, proven: Proven, silent: Mask) -> tuple[Mask, Mask]:
    """Return (wrong, undecided), both (d, c). silent (d,): columns of zeros in every row.

    A silent column has the weight 0 exactly, whatever the bound.
    """
    shift = -proven.grid
    zero_below, tie = 1 << (shift - 90), 1 << (shift - 256)
    head = np.ascontiguousarray(head)
    magnitude = np.abs(head)
    zero = magnitude == 0
    odd = (head.view(np.uint32) & 1).astype(bool)
    weights = np.where(np.signbit(head), -proven.weights, proven.weights)
    weights = np.where(zero, np.abs(proven.weights), weights)
    low, high = _interval(magnitude, shift)
    low[magnitude == np.float32(2.0**-90)] = zero_below
    low[zero], high[zero] = -zero_below, zero_below
    reach = (proven.bounds + tie)[None, :]
    wrong = (weights + reach < low) | (weights - reach > high)
    inside = (weights - reach > low) & (weights + reach < high)
    on_edge = (np.abs(weights - low) + proven.bounds < tie) | (
        np.abs(weights - high) + proven.bounds < tie
    )
    settled = inside | on_edge
    wrong = wrong | (on_edge & (odd | zero))
    wrong = wrong | (~zero & (magnitude < np.float32(2.0**-90)))
    wrong = np.where(silent[:, None], ~zero, wrong) | (zero & np.signbit(head))
    undecided = ~wrong & ~settled & ~silent[:, None]
    return wrong.astype(bool), undecided.astype(bool)


def _interval(magnitude: Head, shift: int) -> tuple[Integers, Integers]:
    """Midpoints to the float32 below and above, as integers times 2^-shift."""
    wide = magnitude.astype(np.float64)
    with np.errstate(over="ignore"):
        above = np.nextafter(magnitude, np.float32(np.inf)).astype(np.float64)
    above[np.isinf(above)] = 2.0**128
    below = np.nextafter(magnitude, np.float32(0)).astype(np.float64)
    return _on_grid((wide + below) / 2, shift), _on_grid((wide + above) / 2, shift)


def _on_grid(values: Matrix, shift: int) -> Integers:
    """Multiples of 2^-150 as integers times 2^-shift (shift >= 150)."""
    scaled = np.empty(values.shape, dtype=object)
    scaled[:] = [[int(value) for value in row] for row in np.ldexp(values, 150)]
    integers: Integers = scaled << (shift - 150)
    return integers


def _narrow(values: Integers) -> Integers:
    """int64 where every number fits, for speed."""
    widest = max(int(values.max()), -int(values.min()))
    return values.astype(np.int64) if widest < 2**62 else values


def _root_above(square: int) -> int:
    """Return the least integer r >= 0 with r² >= square."""
    return isqrt(square - 1) + 1 if square else 0


def _ceiling(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def decimal_above(value: Fraction) -> str:
    """Return three significant digits, rounded up."""
    context = Context(prec=3, rounding=ROUND_CEILING)
    return str(context.divide(Decimal(value.numerator), Decimal(value.denominator)))


def _malformed_rounded(claim: RidgeClaim, statistics: Recomputed | None) -> str | None:
    """Return what makes the claim impossible to evaluate, or None."""
    shape = (claim.dimension, claim.classes)
    if statistics is None:
        return "no statistics to judge it by"
    if not (0 < claim.penalty < float("inf")):
        return "the penalty is not a positive number"
    if claim.head.shape != shape or claim.head.dtype != np.float32:
        return "the head has another shape or type"
    if claim.witness.dtype != np.float64 or claim.witness.shape[1:] != shape:
        return "the witness has another shape or type"
    if not 1 <= len(claim.witness) <= MAX_TERMS:
        return f"the witness has no term, or more than {MAX_TERMS}"
    if not (np.isfinite(claim.head).all() and np.isfinite(claim.witness).all()):
        return "the head or the witness holds NaN or infinity"
    if not (0 <= claim.bound < float("inf")):
        return "the claimed bound is not a number"
    if claim.attested != 0:
        return "rows that are known by sketches only allow no such claim"
    return None


# Check 2 of `numerically-exact`: the published float64 head is proven close to W*.
#
# No system is solved and no solver is trusted: for any W,
#
#     ‖W - W*‖_F <= ‖(G + λI)W - C‖_F / μ,      μ <= λ_min(G + λI).
BOUND = CHECKS["head-bound"]
TINY = Fraction(2) ** -1022  # the least normal float64: for a head of zeros


def check_bound(claim: RidgeClaim, statistics: Recomputed | None) -> Judgement:
    """Judge the head (d, c) float64 of `claim` by verified statistics."""
    problem = _malformed_bound(claim, statistics)
    if problem is not None or statistics is None:
        return judged(BOUND, f"{problem}", passed=False)
    head = claim.head.astype(np.float64, copy=False)
    proven = proven_bound(head, claim, statistics)
    allowed = Fraction(claim.tolerance) * max(_norm_below(head), TINY)
    threshold = f"at most {float(allowed):.3g} ({claim.tolerance:g} * norm of the head)"
    value = bound = decimal_above(proven)
    if proven > Fraction(claim.bound):
        value = f"the claimed bound is below the proven {bound}"
    passed = proven <= Fraction(claim.bound) and proven <= allowed
    return judged(BOUND, value, passed=passed, interval=("0", bound), threshold=threshold)


def proven_bound(head: Matrix, claim: RidgeClaim, statistics: Recomputed) -> Fraction:
    """Return an upper bound of ‖head - W*‖_F for finite head (d, c)."""
    norm = residual_norm(head, claim, statistics)
    if norm is not None:
        return norm / convexity(claim, statistics)
    return prove_sum(head[None], claim, statistics).norm()


def _norm_below(head: Matrix) -> Fraction:
    """Return a lower bound of ‖head‖_F, within 2^-50 of it."""
    largest = float(np.abs(head).max())
    if largest == 0:
        return Fraction(0)
    exponent = int(np.frexp(largest)[1])
    # Entries truncated to multiples of 2^-60 of the largest: sums of Python integers are exact.
    whole, place = to_integers(np.trunc(np.ldexp(head, 60 - exponent)))
    square = sum(x * x for x in whole.ravel().tolist())
    return Fraction(isqrt(square)) * Fraction(2) ** (place + exponent - 60)


def _malformed_bound(claim: RidgeClaim, statistics: Recomputed | None) -> str | None:
    problem = malformed(claim, statistics)
    if problem is None and claim.attested != 0:
        return "rows that are known by sketches only allow no such claim"
    return problem


def malformed(claim: RidgeClaim, statistics: Recomputed | None) -> str | None:
    """Return what makes a claim of a distance impossible to evaluate, or None."""
    if statistics is None:
        return "no statistics to judge it by"
    if not (0 < claim.penalty < float("inf")):
        return "the penalty is not a positive number"
    if claim.head.shape != (claim.dimension, claim.classes) or claim.head.dtype != np.float64:
        return "the head has another shape or type"
    if not np.isfinite(claim.head).all():
        return "the head holds NaN or infinity"
    if not (0 <= claim.bound < float("inf")):
        return "the claimed bound is not a number"
    if not (0 < claim.tolerance < 1):
        return "the tolerance is not between 0 and 1"
    return None


# The head of a model that follows sketches, by a proven distance to the solution.
#
# The objective ‖XW - Y‖² + λ‖W‖² is 2λ-strongly convex, so for any W, however computed,
#
#     ‖W - W*‖_F <= ‖∇(W)‖_F / 2λ = ‖(G + λI)W - C‖_F / λ.
#
# The gradient is evaluated on the statistics verified by check 1. If these are within
# `attested` of those of the rows, in the spectral norm and as stated by the clients, the
# gradient of the rows differs by attested·‖W‖_F at most, and the bound by that over λ. The
# claimed bound must not be less than the proven one, which must be within the registered
# budget: the budget cannot be chosen after the fact.
CERTIFIED = CHECKS["head-certified"]


def check_certified(claim: RidgeClaim, statistics: Recomputed | None) -> Judgement:
    """Judge the head (d, c) float64 of `claim` by verified statistics."""
    problem = _malformed_certified(claim, statistics)
    if problem is not None or statistics is None:
        return judged(CERTIFIED, f"{problem}", passed=False)
    head = claim.head.astype(np.float64, copy=False)
    square = square_of_norm(head)
    proven = proven_bound(head, claim, statistics)
    proven += Fraction(claim.attested) / Fraction(claim.penalty) * root_above(square)
    budget = Fraction(claim.tolerance)
    norm = decimal_above(root_above(square))
    threshold = f"at most the claimed bound and {claim.tolerance:g} * norm of the head ({norm})"
    value = bound = decimal_above(proven)
    kept = proven**2 <= budget**2 * square
    if proven > Fraction(claim.bound):
        value = f"the claimed bound is below the proven {bound}"
    elif not kept:
        value = f"the proven {bound} exceeds the registered budget"
    passed = kept and proven <= Fraction(claim.bound)
    return judged(CERTIFIED, value, passed=passed, interval=("0", bound), threshold=threshold)


def square_of_norm(head: Matrix) -> Fraction:
    """Return ‖head‖_F², exactly."""
    integers, place = to_integers(head)
    return Fraction(sum(int(x) ** 2 for x in integers.ravel())) * Fraction(4) ** place


def root_above(square: Fraction) -> Fraction:
    """Return an upper bound of the root of `square` >= 0, within 2^-60 of it."""
    if square == 0:
        return Fraction(0)
    # Scaled by a power of four to at least 128 bits, where a unit is below 2^-63 of the root.
    bits = square.numerator.bit_length() - square.denominator.bit_length()
    places = max(0, (130 - bits) // 2)
    whole = -(-square.numerator * 4**places // square.denominator)
    return Fraction(isqrt(whole) + 1, 2**places)


def _malformed_certified(claim: RidgeClaim, statistics: Recomputed | None) -> str | None:
    problem = malformed(claim, statistics)
    if problem is None and not (0 <= claim.attested < float("inf")):
        return "what is attested of the rows is not a number"
    return problem
