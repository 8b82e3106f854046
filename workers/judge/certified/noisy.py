"""The verifier of `certified-approximate` for noisy fine-tuning.

1 model-file    2 data    3 retained-set    4 purge    5 re-execution    6 noise    7 budget
8 registration    9 rows-before    10 model-before

The steps are rerun with the committed noise elsewhere; here the results are compared bit for
bit. An unclipped gradient or start, a missing step or an erased row gives another result. The
privacy accounting is done here, from the registered numbers and the published σ: if z is the
distance still to hide (2C₀ at first), a step of rate γ, pull λ and clipped gradients makes it
(1 - γλ)z + 2γC₁, and noise hides a shift a of it at a cost of a²/(2σ²) of zero-concentrated
privacy. The shifts are followed step by step until no distance is left.
"""

import hashlib
from dataclasses import dataclass
from math import exp, isfinite, log, log1p

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement, PurgeClaim, RetainedSetClaim
from workers.judge.certified.logistic_noise import BUDGET, KEY_LABEL, NOISE
from workers.judge.checks import (
    SHA256,
    CheckingVerifier,
    check_model_file,
    check_pairs,
    check_retention,
    guarded,
    judged,
)

RERUN = CHECKS["re-execution"]
LARGEST = 10_000  # parameters


@dataclass(frozen=True, slots=True)
class NoisyTerms:
    """The registered steps T, C₀, C₁, γ and λ, and (ε, δ) for a number of releases."""

    steps: int
    start_norm: float
    gradient_norm: float
    learning_rate: float
    pull: float
    epsilon: float
    delta: float
    releases: int


@dataclass(frozen=True, slots=True, eq=False)
class NoisyClaim:
    """A published head, and the run that is claimed to have made it. Digests are hex SHA-256.

    repeated: of the model file from the verifier's own run on the retained rows;
    environment_equal: whether that run had the method's library versions and hardware. sigma:
    as published, and as in that run. key: 32 secret bytes; commitment: to the key, logged
    before the request. parameters: of the head. before: releases since the last repeated
    training, by the log. Pairs are (logged or claimed, recomputed).
    """

    retained_set: RetainedSetClaim
    purge: PurgeClaim
    published_digest: str
    file_digest: str
    claimed_data: str
    data: str
    repeated: str
    environment_equal: bool
    terms: NoisyTerms
    sigma: float
    key: bytes
    commitment: str
    parameters: int
    before: int
    registration: tuple[str, str]
    rows_before: tuple[str, str]
    model_before: tuple[str, str]


def check_repeated(claim: NoisyClaim) -> Judgement:
    """Judge the repetition: another result refutes only on equal hardware."""
    ran = f"{claim.terms.steps} of {claim.terms.steps} noisy steps, and the rounds after them"
    if not SHA256.fullmatch(claim.repeated):
        return judged(RERUN, "a digest is not SHA-256 in lower-case hex", passed=False)
    if claim.repeated == claim.published_digest:
        return judged(RERUN, f"{ran}, sha256 {claim.repeated}", passed=True)
    elsewhere = claim.environment_equal is not True
    where = ", in another environment" if elsewhere else ""
    value = f"{ran}, end with another model{where}"
    return judged(RERUN, value, passed=False, undecided=elsewhere)


def check_key(claim: NoisyClaim) -> Judgement:
    """Judge whether the noise of the repeated run was that of the committed key."""
    value, passed = f"0 of {claim.parameters} weights; sigma {claim.sigma:g}", False
    undecided = False
    if not isinstance(claim.key, bytes) or len(claim.key) != 32:
        value = "the key has not 32 bytes"
    elif not SHA256.fullmatch(claim.commitment):
        value = "the commitment is not SHA-256 in lower-case hex"
    elif hashlib.sha256(KEY_LABEL + claim.key).hexdigest() != claim.commitment:
        value = "the key is not the committed one"
    elif not 1 <= claim.parameters <= LARGEST:
        value = f"the head has {claim.parameters} weights, and at most {LARGEST} are allowed"
    elif claim.repeated != claim.published_digest:
        value = f"the model is not the one with this noise; sigma {claim.sigma:g}"
        undecided = claim.environment_equal is not True
    else:
        passed = True
    return judged(NOISE, value, passed=passed, undecided=undecided)


def check_spent(claim: NoisyClaim) -> Judgement:
    """Judge the accounting of all registered releases together."""
    terms = claim.terms
    counts = (terms.steps, terms.releases, claim.before)
    if any(isinstance(count, bool) or not isinstance(count, int) for count in counts):
        raise TypeError("steps and releases are counted in whole numbers")
    problem = _odd(claim)
    if problem is None and claim.before >= terms.releases:
        problem = f"more than the {terms.releases} releases that the noise is for"
    if problem is None:
        rho = terms.releases * spent(terms, claim.sigma)
        if not smallest_delta(rho, terms.epsilon) <= terms.delta:
            problem = "the noise is too small for the registered releases"
    threshold = f"all hidden at (epsilon, delta) = ({terms.epsilon:g}, {terms.delta:g})"
    value = f"release {claim.before + 1} of {terms.releases}, within its allowance"
    return judged(BUDGET, problem or value, passed=problem is None, threshold=threshold)


def spent(terms: NoisyTerms, sigma: float) -> float:
    """Return a ρ for which the last iterates of two runs are ρ-zCDP; infinity for none.

    A shift is hidden in the proportion (1 - γλ)^(T-t) at step t, and its size is the smallest
    that leaves nothing after the last step, by bisection.
    """
    keeps = 1 - terms.learning_rate * terms.pull
    weights = [float(keeps ** (terms.steps - 1 - step)) for step in range(terms.steps)]

    def left(size: float) -> float:
        distance = 2.0 * terms.start_norm
        for weight in weights:
            distance = keeps * distance + 2 * terms.learning_rate * terms.gradient_norm
            distance = max(0.0, distance - size * weight)
        return distance

    low = 0.0
    high = 2 * (terms.start_norm + terms.learning_rate * terms.gradient_norm * terms.steps)
    if left(high) > 0:
        return float("inf")
    for _ in range(60):
        middle = (low + high) / 2
        if left(middle) > 0:
            low = middle
        else:
            high = middle
    shifts = [high * weight for weight in weights]
    return sum(shift * shift for shift in shifts) / (2 * sigma * sigma)


def smallest_delta(rho: float, epsilon: float) -> float:
    """Return a δ for which ρ-zCDP gives (ε, δ).

    min over α of exp((α - 1)(αρ - ε)) (1 - 1/α)^α / (α - 1) (Canonne, Kamath and Steinke 2020,
    Proposition 12), by golden sections over ln(α - 1). Every α gives a true bound.
    """
    if not (isfinite(rho) and rho > 0):
        return 1.0

    def power(place: float) -> float:
        above = exp(place)  # α - 1
        order = 1 + above
        return above * (order * rho - epsilon) + order * (place - log1p(above)) - place

    low, high, ratio = -30.0, max(1.0, log(1 + epsilon / rho)) + 2, 0.6180339887498949
    for _ in range(120):
        one, two = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, two) if power(one) < power(two) else (one, high)
    least = power((low + high) / 2)
    return 1.0 if least >= 0 else exp(least)


def _odd(claim: NoisyClaim) -> str | None:
    """Return what is out of range, or None."""
    terms = claim.terms
    sizes = (terms.start_norm, terms.gradient_norm, terms.learning_rate, claim.sigma)
    if not all(isfinite(size) and 0 < size <= 1e300 for size in sizes):
        return "sigma, a norm or the learning rate is not a positive number"
    if not (isfinite(terms.pull) and 0 <= terms.pull * terms.learning_rate <= 1):
        return "learning rate times pull is not between 0 and 1"
    if not 1 <= terms.steps <= 1000 or not 1 <= terms.releases <= 1 << 20 or claim.before < 0:
        return "the counts of steps or releases are impossible"
    if not 0 < terms.epsilon <= 20 or not 1e-100 <= terms.delta < 1:
        return "epsilon is not above 0 and at most 20, or delta not between 1e-100 and 1"
    return None


def checks_of(claim: NoisyClaim) -> list[Judgement]:
    """Judge noisy fine-tuning by its repetition and by the privacy accounting."""
    pairs = {
        "registration": claim.registration,
        "rows-before": claim.rows_before,
        "model-before": claim.model_before,
    }
    return [
        check_model_file(claim.published_digest, claim.file_digest),
        *check_pairs({"data": (claim.claimed_data, claim.data)}),
        *check_retention(claim.retained_set, claim.purge),
        guarded(RERUN, lambda: check_repeated(claim)),
        guarded(NOISE, lambda: check_key(claim)),
        guarded(BUDGET, lambda: check_spent(claim)),
        *check_pairs(pairs),
    ]


VERIFIER = CheckingVerifier("certified-approximate", checks_of)
