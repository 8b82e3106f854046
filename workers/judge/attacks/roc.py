"""Measures of scores: advantage, AUC, and true positives at few false ones.

members (m,) and others (n,) are float64 scores, higher for members, never NaN; equal scores
count half in the AUC, and a score equal to a threshold is not above it.
"""

import numpy as np
from scipy.special import ndtri

from lethe.certificates.attack_curve import MOST, Counts
from workers.errors import RefusedError
from workers.judge.inference.intervals import (
    FEW,
    Interval,
    Vector,
    chernoff_hoeffding,
    clopper_pearson,
)
from workers.judge.inference.sizes import flags_allowed


def auc(members: Vector, others: Vector) -> float:
    """Return the probability that a member's score is larger (Mann and Whitney 1947)."""
    return delong(members, others)[0]


def delong(members: Vector, others: Vector) -> tuple[float, float]:
    """Return (AUC, its variance), after DeLong, DeLong and Clarke-Pearson (Biometrics 1988).

    Raises RefusedError with fewer than two scores on a side.
    """
    if min(len(members), len(others)) < 2:
        raise RefusedError("the variance of an AUC needs two scores on each side")
    above = _below(members, others)
    under = 1 - _below(others, members)
    variance = above.var(ddof=1) / len(members) + under.var(ddof=1) / len(others)
    return float(above.mean()), float(variance)


def auc_interval(area: float, variance: float, smaller: int, level: float) -> Interval:
    """Return the normal interval of an AUC with DeLong's variance, clipped to [0, 1].

    Asymptotic: used on hundreds of scores. Near 0 and 1 the variance depends on the few scores
    that are out of order, and at an end it is 0: with 300 scores a side the interval at 5 %
    would miss a true AUC of 0.99 in 8 % of all samples, at 0.25 % in 2 %. So with fewer than
    FEW of the `smaller` side's scores out of order, and without variance, it also reaches as
    far as Chernoff's and Hoeffding's bound, which holds for any number of scores.
    """
    reach = -float(ndtri(level / 2)) * max(0.0, variance) ** 0.5
    low, high = max(0.0, area - reach), min(1.0, area + reach)
    if variance > 0 and min(area, 1 - area) * smaller >= FEW:
        return low, high
    bound = chernoff_hoeffding(area, smaller, level)
    return min(low, bound[0]), max(high, bound[1])


def advantage(members: Vector, others: Vector, threshold: float) -> float:
    """Return true minus false positive rate of a threshold fixed beforehand (Yeom 2018)."""
    return float((members > threshold).mean() - (others > threshold).mean())


def advantage_interval(
    members: Vector, others: Vector, threshold: float, level: float
) -> Interval:
    """Return the interval of the advantage of a threshold fixed beforehand.

    Each rate has its Clopper–Pearson interval at half the level, so their difference misses
    with a probability of at most `level` (Bonferroni).
    """
    true, false = (
        clopper_pearson(int((side > threshold).sum()), len(side), level / 2)
        for side in (members, others)
    )
    return true[0] - false[1], true[1] - false[0]


def best_advantage(members: Vector, others: Vector) -> float:
    """Return the greatest advantage of any threshold, which is chosen after the fact.

    This is the one-sided statistic of Kolmogorov and Smirnov (Smirnov 1939) of both samples.
    """
    places = np.unique(np.concatenate([members, others]))
    rates = [
        1 - np.searchsorted(np.sort(side), places, "right") / len(side)
        for side in (members, others)
    ]
    return max(0.0, float((rates[0] - rates[1]).max()))


def best_advantage_interval(members: Vector, others: Vector, level: float) -> Interval:
    """Return the interval of the greatest advantage of any threshold on rows not yet seen.

    Valid for any laws and sizes, each end at half the level. Low: no threshold's rates are
    further off than the bands of both samples, each at a quarter of the level (Dvoretzky,
    Kiefer and Wolfowitz; with Massart's constant, Ann. Probab. 1990, theorem 1). High: the best
    threshold of the population is a fixed one, whose observed advantage Hoeffding's inequality
    bounds (J. Am. Stat. Assoc. 1963, corollary of theorem 2); the best observed is no less.
    """
    best = best_advantage(members, others)
    sizes = np.array([len(members), len(others)])
    bands = np.sqrt(np.log(4 / level) / (2 * sizes)).sum()
    reach = np.sqrt(np.log(2 / level) * (1 / sizes).sum() / 2)
    return max(0.0, float(best - bands)), min(1.0, float(best + reach))


def tpr_at_fpr(members: Vector, others: Vector, rate: float) -> float:
    """Return the greatest true positive rate at an observed false one of at most `rate`."""
    allowed = int(np.floor(rate * len(others) + 1e-9))
    return float((members > _after(others, allowed)).mean())


def caught(members: Vector, others: Vector, rate: float) -> int | None:
    """Return how many members lie above a threshold whose false positive rate is `rate`.

    The threshold is the lowest of the others' scores for which a false positive rate of at most
    `rate` is shown at 95 %; it does not depend on the members. None if there are too few
    others.
    """
    allowed = flags_allowed(len(others), rate)
    return None if allowed is None else int((members > _after(others, allowed)).sum())


def _after(others: Vector, flagged: int) -> float:
    """Return the score that at most `flagged` others exceed."""
    return float(np.sort(others)[::-1][flagged]) if flagged < len(others) else -np.inf


def _below(scores: Vector, others: Vector) -> Vector:
    """Return for each score the share of `others` below it; equal ones count half."""
    order = np.sort(others)
    less = np.searchsorted(order, scores, "left")
    upto = np.searchsorted(order, scores, "right")
    return (less + upto) / (2 * len(others))


# The empirical ROC curve of an attack at a bounded number of thresholds, with its band.
#
# members (m,) and others (n,) are float64 scores, higher for members, never NaN. Equal scores
# are on the same side of every threshold.
def curve(members: Vector, others: Vector, most: int = MOST) -> Counts:
    """Return at most `most` points of the curve as counts (others, members) above a threshold.

    Between two neighbours both counts together rise by at most two shares of 1/(most - 1) of a
    side each, or by one group of equal scores: omitted points lie in the rectangle that they
    span. From (0, 0) to (n, m).
    """
    places = np.unique(np.concatenate([members, others]))[::-1]
    false, true = (
        np.r_[0, len(side) - np.searchsorted(np.sort(side), places, "left")]
        for side in (others, members)
    )
    # In whole numbers, so that a recheck on another machine takes the same points.
    height = (false * len(members) + true * len(others)) * (most - 1)
    steps = np.arange(most) * (2 * len(members) * len(others))
    chosen = np.unique(np.searchsorted(height, steps, "left"))
    return tuple((int(false[one]), int(true[one])) for one in chosen)


def reach(size: int, level: float) -> float:
    """Return the maximum error of the rates of a side, at all thresholds of both sides at once.

    Each side gets half the level (Bonferroni), and the band of Dvoretzky, Kiefer and Wolfowitz
    with Massart's constant (Ann. Probab. 1990, theorem 1): valid for any law and any number of
    independent scores, ties included. A side's rates are one minus its distribution function.
    """
    return float(np.sqrt(np.log(4 / level) / (2 * size)))
