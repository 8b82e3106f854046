"""Two-sided confidence intervals, named by their level: the probability of a miss."""

from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, rel_entr, stdtrit

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
