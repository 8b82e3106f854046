"""Checks 6 and 7 of a logistic head: the noise is the committed one, and it hides enough.

With ‖θ̂ - θ*‖ <= r proven, θ̂ + N(0, σ²I) and θ* + N(0, σ²I) are (ε, δ)-indistinguishable iff

    Φ(r/2σ - εσ/r) - e^ε Φ(-r/2σ - εσ/r) <= δ          (Balle and Wang 2018, Theorem 8)

and a stream of such releases is equivalent to one with √(Σ r_t²) (composition of Gaussian
differential privacy, Dong, Roth and Su 2022): n of them are hidden if each is with √n·r_t for
r. Values here may depend on the rows only through passing or not: they are published without
noise. The noise is read off SHAKE-256("lethe certified noise 1", 0, key, context) as pairs (a,
b) of little-endian 64-bit words: with u = (⌊a/2^11⌋ + 1)/2^53 and v = ⌊b/2^11⌋/2^53, √(-2 ln
u)·(cos 2πv, sin 2πv), in the order bias, weight; the context is the digest of the retained
rows.
"""

import hashlib
from dataclasses import dataclass
from math import erfc, exp, isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CHECKS
from workers.arrays import Matrix
from workers.judge.base import Judgement
from workers.judge.checks import SHA256, judged

NOISE, BUDGET = CHECKS["noise"], CHECKS["budget"]
KEY_LABEL = b"lethe certified noise key 1\x00"
NOISE_LABEL = b"lethe certified noise 1\x00"
ANGLE = 2.0**-40  # how far another machine's logarithm and cosine may be off, times sigma


@dataclass(frozen=True, slots=True, eq=False)
class NoiseClaim:
    """The registered noise, what it was added to, and what it has to hide.

    centre_bias (c,), centre_weight (c, p) float32, and key, 32 bytes, are secrets that only the
    verifier sees; commitment: hex SHA-256, logged before the request. releases: how many models
    may be released between trainings; before: how many have been, by the log. ordinal: how many
    versions the model had before this one since its registration, by the log.
    """

    sigma: float
    epsilon: float
    delta: float
    centre_bias: NDArray[np.float32]
    centre_weight: NDArray[np.float32]
    key: bytes
    commitment: str
    releases: int
    before: int
    ordinal: int


def check_noise(
    noise: NoiseClaim, bias: NDArray[np.float32], weight: NDArray[np.float32], context: str
) -> Judgement:
    """Judge the published (bias, weight) by the key and the centre."""
    problem = _odd(noise) or _uncommitted(noise)
    value = f"0 of {bias.size + weight.size} weights; sigma {noise.sigma:g}"
    if problem is None:
        published = np.concatenate([bias, weight.ravel()])
        centre = np.concatenate([noise.centre_bias, noise.centre_weight.ravel()])
        draws = gaussian(noise.key, f"{context}|{noise.ordinal}", len(published))
        with np.errstate(all="ignore"):
            wanted = centre.astype(np.float64) + noise.sigma * draws
            half = np.spacing(np.abs(published)).astype(np.float64) / 2
            off = np.abs(published - wanted) > half * (1 + 2.0**-20) + ANGLE * noise.sigma
        if not np.isfinite(wanted).all() or off.any():
            problem = f"{np.count_nonzero(off)} of {off.size} weights; sigma {noise.sigma:g}"
    return judged(NOISE, problem or value, passed=problem is None)


def check_budget(noise: NoiseClaim, proven: float) -> Judgement:
    """Judge the accounting; proven: a bound of ‖θ̂ - θ*‖ for this release's centre."""
    threshold = f"all hidden at (epsilon, delta) = ({noise.epsilon:g}, {noise.delta:g})"
    counts, problem = (noise.releases, noise.before), _odd(noise)
    if any(isinstance(count, bool) or not isinstance(count, int) for count in counts):
        raise TypeError("releases are counted in whole numbers")
    if problem is None and (not 1 <= noise.releases <= 1 << 20 or noise.before < 0):
        problem = "the counts of releases are impossible"
    elif problem is None and noise.before >= noise.releases:
        problem = f"more than the {noise.releases} releases that the noise is for"
    if problem is None:
        shift = sqrt(noise.releases) * proven / noise.sigma * (1 + 2.0**-48)
        if not delta_above(shift, noise.epsilon) <= noise.delta:
            problem = "the centre is further from the optimum than the noise hides"
    value = f"release {noise.before + 1} of {noise.releases}, within its allowance"
    return judged(BUDGET, problem or value, passed=problem is None, threshold=threshold)


def delta_above(shift: float, epsilon: float) -> float:
    """Return an upper bound of δ for means `shift` standard deviations apart."""
    if shift == 0:
        return 0.0
    ratio = epsilon / shift
    first = erfc((ratio - shift / 2) / sqrt(2)) / 2
    second = exp(epsilon) * erfc((ratio + shift / 2) / sqrt(2)) / 2
    # erfc's own error, and the effect of its argument's rounding: 38² units at most.
    return max(0.0, first - second) + 2.0**-36 * first + 1e-300


def _odd(noise: NoiseClaim) -> str | None:
    """Return what is out of range, or None."""
    if not (isfinite(noise.sigma) and noise.sigma > 0):
        return "sigma is not a positive number"
    if not 0 < noise.epsilon <= 20:
        return "epsilon is not above 0 and at most 20"
    if not 1e-100 <= noise.delta < 1:
        return "delta is not between 1e-100 and 1"
    return None


def _uncommitted(noise: NoiseClaim) -> str | None:
    if not isinstance(noise.key, bytes) or len(noise.key) != 32:
        return "the key has not 32 bytes"
    if not SHA256.fullmatch(noise.commitment):
        return "the commitment is not SHA-256 in lower-case hex"
    if hashlib.sha256(KEY_LABEL + noise.key).hexdigest() != noise.commitment:
        return "the key is not the committed one"
    return None


def gaussian(key: bytes, context: str, size: int) -> Matrix:
    """Return `size` numbers (size,) of N(0, 1), generated as in the module docstring."""
    pairs = -(-size // 2)
    data = hashlib.shake_256(NOISE_LABEL + key + context.encode()).digest(16 * pairs)
    whole = np.frombuffer(data, "<u8") // np.uint64(1 << 11)
    radius = np.sqrt(-2.0 * np.log(np.ldexp(whole[0::2].astype(np.float64) + 1, -53)))
    turns = np.ldexp(whole[1::2].astype(np.float64), -53)
    draws = np.empty(2 * pairs)
    draws[0::2] = radius * np.cos(2 * np.pi * turns)
    draws[1::2] = radius * np.sin(2 * np.pi * turns)
    return draws[:size]
