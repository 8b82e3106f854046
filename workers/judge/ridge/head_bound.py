"""Check 2 of `numerically-exact`: the published float64 head is proven close to W*.

No system is solved and no solver is trusted: for any W,

    ‖W - W*‖_F <= ‖(G + λI)W - C‖_F / μ,      μ = λ <= λ_min(G + λI).
"""

from fractions import Fraction
from math import isqrt

import numpy as np

from lethe.catalogue import CHECKS
from workers.arrays import Matrix
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.ridge.claim import RidgeClaim
from workers.judge.ridge.head import decimal_above, prove_sum
from workers.judge.ridge.integers import to_integers
from workers.judge.ridge.residual import residual_norm
from workers.judge.ridge.statistics import Recomputed

SPEC = CHECKS["head-bound"]
TINY = Fraction(2) ** -1022  # the least normal float64: for a head of zeros


def check_head(claim: RidgeClaim, statistics: Recomputed | None) -> Judgement:
    """Judge the head (d, c) float64 of `claim` by verified statistics."""
    problem = _no_claim(claim, statistics)
    if problem is not None or statistics is None:
        return judged(SPEC, f"{problem}", passed=False)
    head = claim.head.astype(np.float64, copy=False)
    proven = proven_bound(head, claim, statistics)
    allowed = Fraction(claim.tolerance) * max(_norm_below(head), TINY)
    threshold = f"at most {float(allowed):.3g} ({claim.tolerance:g} * norm of the head)"
    value = bound = decimal_above(proven)
    if proven > Fraction(claim.bound):
        value = f"the claimed bound is below the proven {bound}"
    passed = proven <= Fraction(claim.bound) and proven <= allowed
    return judged(SPEC, value, passed=passed, interval=("0", bound), threshold=threshold)


def proven_bound(head: Matrix, claim: RidgeClaim, statistics: Recomputed) -> Fraction:
    """Return an upper bound of ‖head - W*‖_F for finite head (d, c)."""
    norm = residual_norm(head, claim, statistics)
    if norm is not None:
        return norm / Fraction(claim.penalty)
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


def _no_claim(claim: RidgeClaim, statistics: Recomputed | None) -> str | None:
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
