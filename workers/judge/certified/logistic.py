"""The verifier of `certified-approximate` for logistic heads.

1 model-file    2 data    3 retained-set    4 purge    5 gradient-bound
noise    budget (both where the claim has noise)    registration    rows-before

No solver is trusted and no optimum computed: the gradient of the registered objective is
evaluated at the published weights over the retained rows, and strong convexity bounds the
distance. The claimed bound must not be less than the proven one, which must be within the
registered tolerance. With noise, the distance is also at most that of the centre plus the
noise, often less than the gradient's bound; and (ε, δ) depend on the centre's distance alone.
"""

from dataclasses import dataclass
from math import frexp, isfinite, ldexp

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CHECKS
from workers.arrays import Labels
from workers.judge.base import Judgement, PurgeClaim, RetainedSetClaim
from workers.judge.certified.logistic_gradient import Single, distance_above
from workers.judge.certified.logistic_noise import (
    BUDGET,
    NOISE,
    NoiseClaim,
    check_budget,
    check_noise,
)
from workers.judge.checks import (
    CheckingVerifier,
    check_model_file,
    check_pairs,
    check_retention,
    guarded,
    judged,
)

BOUND = CHECKS["gradient-bound"]
LARGEST = 1 << 28  # weights, and 2^31 rows: the slack of the bound covers these sizes


@dataclass(frozen=True, slots=True, eq=False)
class LogisticClaim:
    """A published logistic head, the retained rows, and its claimed distance to θ*.

    features (n, p) float32 and labels (n,) int64: the retained training rows, as stored;
    claimed_data and data: hex SHA-256 of them, as claimed by the method and as stored. bias
    (c,), weight (c, p) float32: read from the file of file_digest. penalty: λ of the
    registration, per row, on all weights; tolerance: the registered bound of ‖θ - θ*‖ / ‖θ‖;
    bound: the claimed bound of ‖θ - θ*‖. registration: digests of the model's registration,
    logged and current: it contains penalty, tolerance and noise. rows_before: digests of all
    rows of the version before: as published, and of the stored rows with the removed ones.
    """

    retained_set: RetainedSetClaim
    purge: PurgeClaim
    published_digest: str
    file_digest: str
    claimed_data: str
    data: str
    features: Single
    labels: Labels
    bias: Single
    weight: Single
    penalty: float
    bound: float
    tolerance: float
    registration: tuple[str, str]
    rows_before: tuple[str, str]
    noise: NoiseClaim | None = None


def check_bound(claim: LogisticClaim) -> Judgement:
    """Judge the published weights by their gradient over the retained rows."""
    problem = _malformed(claim)
    if problem is not None:
        return judged(BOUND, problem, passed=False)
    proven = proven_of(claim, claim.bias, claim.weight)
    if claim.noise is not None and not _unlike(claim, claim.noise):
        proven = min(proven, _across(claim, claim.noise))
    bound = f"{proven * (1 + 2.0**-20):.6g}"
    if claim.noise is not None and isfinite(proven):
        # More digits would publish a function of the rows to which no noise was added.
        bound = f"{ldexp(1.0, frexp(proven)[1]):.6g}"
    weights = np.concatenate([claim.bias, claim.weight.ravel()]).astype(np.float64)
    length = float(np.sqrt(np.square(weights).sum())) * (1 - 2.0**-20)
    kept, told = proven <= claim.tolerance * length, proven <= claim.bound
    value = bound
    if not told:
        value = f"the claimed bound is below the proven {bound}"
    elif not kept:
        value = f"the proven {bound} exceeds the registered tolerance"
    threshold = f"at most the claimed bound and {claim.tolerance:g} * norm ({length:.6g})"
    return judged(
        BOUND, value, passed=kept and told, interval=("0", bound), threshold=threshold
    )


def proven_of(
    claim: LogisticClaim, bias: NDArray[np.float32], weight: NDArray[np.float32]
) -> float:
    """Return a bound of ‖θ - θ*‖ for these weights on the claim's rows."""
    return distance_above(claim.features, claim.labels, bias, weight, claim.penalty)


def _across(claim: LogisticClaim, noise: NoiseClaim) -> float:
    """Return ‖θ - θ̂‖ plus the proven bound of ‖θ̂ - θ*‖."""
    offsets = np.concatenate(
        [
            claim.bias.astype(np.float64) - noise.centre_bias,
            (claim.weight.astype(np.float64) - noise.centre_weight).ravel(),
        ]
    )
    centre = proven_of(claim, noise.centre_bias, noise.centre_weight)
    return (float(np.sqrt(np.square(offsets).sum())) + centre) * (1 + 2.0**-20)


def _malformed(claim: LogisticClaim) -> str | None:
    """Return what makes the claim impossible to evaluate, or None."""
    if claim.bias.ndim != 1 or claim.weight.ndim != 2 or claim.features.ndim != 2:
        return "the weights or rows have another shape"
    inputs, classes = claim.features.shape[1], len(claim.bias)
    if claim.weight.shape != (classes, inputs) or classes < 2:
        return "the weights have another shape than the rows need"
    arrays = (claim.bias, claim.weight, claim.features)
    if any(array.dtype != np.float32 for array in arrays) or claim.labels.dtype != np.int64:
        return "the weights or rows have another type"
    if not len(claim.features) == len(claim.labels) == claim.labels.size >= 1:
        return "there is not exactly one label for each row"
    if len(claim.labels) > claim.retained_set.after_count:
        return "there are more training rows than retained records"
    if claim.labels.min() < 0 or claim.labels.max() >= classes:
        return "a label lies outside the classes"
    if not all(np.isfinite(array).all() for array in arrays):
        return "the weights or rows hold NaN or infinity"
    if claim.weight.size + classes > LARGEST or len(claim.labels) > 1 << 31:
        return "there are too many weights or rows"
    if not (isfinite(claim.penalty) and claim.penalty > 0):
        return "the penalty is not a positive number"
    if not (isfinite(claim.bound) and claim.bound >= 0):
        return "the claimed bound is not a number"
    if not 0 < claim.tolerance < 1:
        return "the tolerance is not between 0 and 1"
    return None


def _unlike(claim: LogisticClaim, noise: NoiseClaim) -> bool:
    """Return whether the centre does not have the shape of this head's weights."""
    pairs = ((noise.centre_bias, claim.bias), (noise.centre_weight, claim.weight))
    return any(
        mine.shape != theirs.shape or mine.dtype != np.float32 or not np.isfinite(mine).all()
        for mine, theirs in pairs
    )


def _check_noise(claim: LogisticClaim, noise: NoiseClaim) -> Judgement:
    if _malformed(claim) is not None or _unlike(claim, noise):
        return judged(
            NOISE, "the centre or the weights have another shape or type", passed=False
        )
    return check_noise(noise, claim.bias, claim.weight, claim.data)


def _check_budget(claim: LogisticClaim, noise: NoiseClaim) -> Judgement:
    if _malformed(claim) is not None or _unlike(claim, noise):
        return judged(BUDGET, "nothing is proven of the centre", passed=False)
    return check_budget(noise, proven_of(claim, noise.centre_bias, noise.centre_weight))


def checks_of(claim: LogisticClaim) -> list[Judgement]:
    """Judge erasure from a logistic head by a proven distance to the retained optimum."""
    noise = claim.noise
    judgements = [
        check_model_file(claim.published_digest, claim.file_digest),
        *check_pairs({"data": (claim.claimed_data, claim.data)}),
        *check_retention(claim.retained_set, claim.purge),
        guarded(BOUND, lambda: check_bound(claim)),
    ]
    if noise is not None:
        judgements += [
            guarded(NOISE, lambda: _check_noise(claim, noise)),
            guarded(BUDGET, lambda: _check_budget(claim, noise)),
        ]
    pairs = {"registration": claim.registration, "rows-before": claim.rows_before}
    judgements += check_pairs(pairs)
    return judgements


VERIFIER = CheckingVerifier("certified-approximate", checks_of)
