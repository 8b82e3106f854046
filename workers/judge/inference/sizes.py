"""Sample sizes for statistical statements; with fewer rows a statement is refused.

Accuracy: of n independent guesses on equally many members and non-members, a model that forgot
leaves n/2 right on average. |accuracy - 1/2| <= tau is shown at `level` if the Clopper–Pearson
interval of the number right lies inside. The power is the probability of that under the
binomial (n, 1/2), summed exactly. In the normal approximation

    n = ((z_{1-level/2} + z_{(1+power)/2}) / 2tau)²,

and at level 5 % and power 80 %: 263, 1,051 and 6,567 for tau 0.10, 0.05, 0.02 (exactly: 276,
1,070, 6,606). Shared among eight checks, as Holm's first step does: 408, 1,632, 10,164.

AUC: its null variance (m + m + 1)/12m² (Mann and Whitney 1947) for n = 2m is 4/3 that of the
accuracy, and so is n. False positives: if none of n non-members is flagged, their rate is at
most f at 95 % once (1 - f)^n <= 0.05: 299 for 1 %, 2,995 for 0.1 %.
"""

from functools import lru_cache
from math import ceil, log, sqrt

import numpy as np
from scipy.special import bdtr, bdtrik, ndtr, ndtri

from workers.errors import RefusedError

CONFIDENCE = 0.95  # of a false positive rate
# Exact power drops a little after each rise; it must hold for this many further sizes.
SAWTOOTH = 64
LARGEST = 2_000_000
BLOCK = 1024


def accuracy_power(guesses: int, tau: float, level: float) -> float:
    """Return the probability of showing |accuracy - 1/2| <= tau if it is exactly 1/2."""
    return float(_accuracy_power(np.array([guesses]), tau, level)[0])


def auc_power(pairs: int, tau: float, level: float) -> float:
    """Return the same for the AUC of m members and m non-members, by the normal law."""
    if pairs < 1:
        return 0.0
    error = sqrt((2 * pairs + 1) / (12 * pairs**2))
    return max(0.0, float(2 * ndtr(tau / error + ndtri(level / 2)) - 1))


@lru_cache(maxsize=64)
def minimum_guesses(tau: float, level: float, power: float = 0.8) -> int:
    """Return the least even n from which on `power` is reached.

    Raises RefusedError if two million guesses would not suffice.
    """
    root = float(-ndtri(level / 2) + ndtri((1 + power) / 2)) / (2 * tau)
    start = 2 * int(0.48 * min(root**2, 3 * LARGEST))  # the exact n is above the normal one
    while start < LARGEST:
        sizes = np.arange(start, start + BLOCK, 2)
        short = _accuracy_power(sizes, tau, level) < power
        runs = np.convolve(short, np.ones(SAWTOOTH), "valid") == 0
        if runs.any():
            return max(2, int(sizes[int(np.argmax(runs))]))
        start += BLOCK - 2 * SAWTOOTH
    raise RefusedError("no sample shows so small a margin: choose a larger tau or alpha")


def minimum_pairs(tau: float, level: float, power: float = 0.8) -> int:
    """Return the number of matched pairs that suffices for both accuracy and AUC."""
    root = (-ndtri(level / 2) + ndtri((1 + power) / 2)) / tau
    by_auc = ceil(float(root) ** 2 / 6) + 1
    return max(minimum_guesses(tau, level, power) // 2, by_auc)


def minimum_unseen(rate: float, confidence: float = CONFIDENCE) -> int:
    """Return the minimum number of non-members for showing a false positive rate."""
    return ceil(log(1 - confidence) / log(1 - rate))


@lru_cache(maxsize=64)
def flags_allowed(unseen: int, rate: float, confidence: float = CONFIDENCE) -> int | None:
    """Return how many of `unseen` non-members may be flagged while the rate is shown.

    None if there are too few even if none is flagged.
    """
    if unseen < minimum_unseen(rate, confidence):
        return None
    flagged = max(0, int(bdtrik(1 - confidence, unseen, rate)))
    while bdtr(flagged, unseen, rate) > 1 - confidence:
        flagged -= 1
    return flagged


def _accuracy_power(
    guesses: np.ndarray[tuple[int], np.dtype[np.int64]], tau: float, level: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    # The maximum that may be right: Clopper–Pearson's upper end is inside iff so few are
    # improbable at 1/2 + tau. The minimum is its mirror image. NaN: none is improbable.
    most = np.floor(bdtrik(level / 2, guesses, 0.5 + tau))
    least = guesses - most
    possible = most >= least
    upto = np.where(possible, most, 0)
    below = np.where(possible, least - 1, 0)
    found = bdtr(upto, guesses, 0.5) - bdtr(np.maximum(below, 0), guesses, 0.5)
    return np.where(possible, found, 0.0)
