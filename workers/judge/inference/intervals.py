"""Two-sided confidence intervals, and how tests decide by them.

An interval is named by its level: the probability of a miss. Tests: equivalence within a
margin, many tests at one level, many requests.
"""

from collections.abc import Callable, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, rel_entr, stdtrit

from lethe.pairs import share_of_alpha
from workers.errors import RefusedError

Interval = tuple[float, float]
Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]
FEW = 10


def clopper_pearson(successes: float, trials: int, level: float) -> Interval:
    """Return the exact interval of a proportion (Clopper and Pearson, Biometrika 1934).

    It misses the proportion with a probability of at most `level`, half of it on each side. It
    also holds for the mean of unequal probabilities, of independent trials, wherever it ends
    further than 1/trials from the estimate (Hoeffding, Ann. Math. Statist. 1956, theorem 4).
    Raises RefusedError for counts that no trials can give.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise RefusedError("a proportion needs a trial, and no more successes than trials")
    failures = trials - successes
    low = betaincinv(successes, failures + 1, level / 2) if successes > 0 else 0.0
    high = 1 - betaincinv(failures, successes + 1, level / 2) if failures > 0 else 1.0
    return float(low), float(high)


def chernoff_hoeffding(mean: float, trials: int, level: float) -> Interval:
    """Return all m in [0, 1] with trials·KL(mean ‖ m) <= ln(2/level), for Bernoulli laws.

    It misses the mean of `trials` independent values in [0, 1] with a probability of at most
    `level`, whatever their laws (Hoeffding, J. Am. Stat. Assoc. 1963, theorem 1). The same
    holds for a U-statistic of two samples, which averages such means over all ways to pair the
    rows, with as many trials as the smaller sample has rows (section 5). Raises RefusedError
    for a mean outside [0, 1] or too few trials.
    """
    if trials < 1 or not 0 <= mean <= 1:
        raise RefusedError("the mean of values from 0 to 1 lies there, and is of one at least")
    reach = log(2 / level) / trials
    return _farthest(mean, 0.0, reach), _farthest(mean, 1.0, reach)


def _farthest(mean: float, end: float, reach: float) -> float:
    """Return the last point between `mean` and `end` within `reach`, to float64, or beyond."""
    inside, outside = mean, end
    while True:
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            return outside
        if rel_entr(mean, middle) + rel_entr(1 - mean, 1 - middle) <= reach:
            inside = middle
        else:
            outside = middle


def mean_interval(values: Vector, level: float) -> Interval:
    """Return Student's t interval of the mean of `values` (n,). Raises RefusedError, n < 2.

    Exact for normal values, and a good approximation for hundreds of bounded ones, as here.
    """
    if len(values) < 2:
        raise RefusedError("the interval of a mean needs two values")
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(values.mean())
        error = float(values.std(ddof=1)) / len(values) ** 0.5
    if not np.isfinite(mean) or not np.isfinite(error):
        return -np.inf, np.inf  # float64 overflow: the interval covers everything
    reach = -float(stdtrit(len(values) - 1, level / 2)) * error
    return mean - reach, mean + reach


def loss_interval(before: Flags, after: Flags, level: float) -> Interval:
    """Return the interval of a loss of accuracy on one sample (n,), correct or wrong each time.

    The loss is the mean of +1 for a row that became wrong, -1 for one that became right: it has
    Student's interval. If either kind is rarer than FEW rows, no mean of theirs is near normal;
    then each share gets a Clopper–Pearson interval at half the level, and their difference
    misses with a probability of at most `level` (Bonferroni).
    """
    lost, won = int((before & ~after).sum()), int((~before & after).sum())
    if min(lost, won) >= FEW:
        return mean_interval(before.astype(np.float64) - after, level)
    fell = clopper_pearson(lost, len(before), level / 2)
    rose = clopper_pearson(won, len(before), level / 2)
    return fell[0] - rose[1], fell[1] - rose[0]


def spell(number: float) -> str:
    """Format a number as in certificates."""
    return f"{number:.6g}"


# Equivalence by two one-sided tests (Schuirmann 1987): the whole interval lies in a margin.
#
# An attack far below chance identifies the forgotten rows as well as one far above it, so the
# margin around 1/2 has two sides. Each side is tested at half the level, which is stricter than
# necessary; in return the certificate shows the very interval that decides.
def within(interval: Interval, margin: Interval) -> bool:
    """Return whether all of `interval` lies strictly inside `margin`: equivalence is shown."""
    return margin[0] < interval[0] and interval[1] < margin[1]


def apart(interval: Interval, margin: Interval) -> bool:
    """Return whether none of `interval` lies inside `margin`: equivalence is refuted."""
    return interval[1] < margin[0] or margin[1] < interval[0]


def around_chance(tau: float) -> Interval:
    """Return the margin |x - 1/2| <= tau."""
    return 0.5 - tau, 0.5 + tau


def tost(correct: int, trials: int, tau: float, level: float) -> bool:
    """Return whether |accuracy - 1/2| <= tau is shown at `level` by `correct` of `trials`."""
    return within(clopper_pearson(correct, trials, level), around_chance(tau))


# Holm's step-down procedure (Scand. J. Statist. 1979) over tests that are not p-values.
#
# A test here says whether it rejects at a level, and a test that rejects at one level rejects
# at every larger one. All tests that reject at alpha/r, with r left, are removed together:
# their order cannot matter, since each later level is larger. The probability of any wrong
# rejection is at most alpha, however the tests depend on each other.
def step_down(rejects: Sequence[Callable[[float], bool]], alpha: float) -> list[float | None]:
    """Return for each test the level at which it rejected, or None if it did not."""
    levels: list[float | None] = [None] * len(rejects)
    left = list(range(len(rejects)))
    while left:
        level = alpha / len(left)
        leaving = [test for test in left if rejects[test](level)]
        if not leaving:
            break
        for test in leaving:
            levels[test] = level
        left = [test for test in left if test not in leaving]
    return levels


def last_level(levels: Sequence[float | None], alpha: float) -> float:
    """Return the level at which the procedure stopped; alpha, if it rejected everything."""
    return alpha / max(1, sum(level is None for level in levels))


# One alpha for all requests that a model will ever get.
#
# The shares of all requests sum to alpha. The probability that any of a model's certificates
# passes wrongly is then at most alpha; later requests need larger samples, not a new policy.
def spent(alpha: float, requests_before: int) -> float:
    """Return the alpha of the request after `requests_before` earlier ones of the model.

    Raises RefusedError for a count that is not a whole number of at least 0.
    """
    if isinstance(requests_before, bool) or not isinstance(requests_before, int):
        raise RefusedError("the number of requests before is not a whole number")
    if requests_before < 0:
        raise RefusedError("the number of requests before is negative")
    return share_of_alpha(alpha, requests_before)
