"""The head of a model that follows sketches, by a proven distance to the solution.

The objective ‖XW - Y‖² + λ‖W‖² is 2λ-strongly convex, so for any W, however computed,

    ‖W - W*‖_F <= ‖∇(W)‖_F / 2λ = ‖(G + λI)W - C‖_F / λ.

The gradient is evaluated on the statistics verified by check 1. If these are within `attested`
of those of the rows, in the spectral norm and as stated by the clients, the gradient of the
rows differs by attested·‖W‖_F at most, and the bound by that over λ. The claimed bound must not
be less than the proven one, which must be within the registered budget: the budget cannot be
chosen after the fact.
"""

from fractions import Fraction
from math import isqrt

import numpy as np

from lethe.catalogue import CHECKS
from workers.arrays import Matrix
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.ridge.claim import RidgeClaim
from workers.judge.ridge.head import decimal_above
from workers.judge.ridge.head_bound import malformed, proven_bound
from workers.judge.ridge.integers import to_integers
from workers.judge.ridge.statistics import Recomputed

SPEC = CHECKS["head-certified"]


def check_head(claim: RidgeClaim, statistics: Recomputed | None) -> Judgement:
    """Judge the head (d, c) float64 of `claim` by verified statistics."""
    problem = _no_claim(claim, statistics)
    if problem is not None or statistics is None:
        return judged(SPEC, f"{problem}", passed=False)
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
    return judged(SPEC, value, passed=passed, interval=("0", bound), threshold=threshold)


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


def _no_claim(claim: RidgeClaim, statistics: Recomputed | None) -> str | None:
    problem = malformed(claim, statistics)
    if problem is None and not (0 <= claim.attested < float("inf")):
        return "what is attested of the rows is not a number"
    return problem
