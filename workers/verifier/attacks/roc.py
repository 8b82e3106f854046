"""What scores are worth: advantage, AUC, and true positives at few false ones.

members (m,) and others (n,) are float64 scores, higher for members, never NaN; equal scores
count half in the AUC and are above no threshold.
"""

import numpy as np
from scipy.special import ndtri

from workers.errors import RefusedError
from workers.verifier.intervals import Interval, Vector, clopper_pearson
from workers.verifier.sizes import flags_allowed


def auc(members: Vector, others: Vector) -> float:
    """Return the chance that a member's score is the larger one (Mann and Whitney 1947)."""
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
    """Return the normal interval of an AUC with DeLong's variance, cut to [0, 1].

    Asymptotic: used on hundreds of scores. Where the variance is 0 (all pairs ordered alike,
    or all tied) it would say too much, and Clopper and Pearson's interval of as many trials
    as the `smaller` side has scores stands in: no AUC varies more (Birnbaum and Klose 1957).
    """
    if variance <= 0:
        return clopper_pearson(min(area * smaller, smaller), smaller, level)
    reach = -float(ndtri(level / 2)) * variance**0.5
    return max(0.0, area - reach), min(1.0, area + reach)


def advantage(members: Vector, others: Vector, threshold: float) -> float:
    """Return the true less the false positive rate of a threshold fixed before (Yeom 2018)."""
    return float((members > threshold).mean() - (others > threshold).mean())


def best_advantage(members: Vector, others: Vector) -> float:
    """Return the greatest advantage of any threshold. It is chosen after the fact."""
    places = np.unique(np.concatenate([members, others]))
    rates = [
        1 - np.searchsorted(np.sort(side), places, "right") / len(side)
        for side in (members, others)
    ]
    return max(0.0, float((rates[0] - rates[1]).max()))


def tpr_at_fpr(members: Vector, others: Vector, rate: float) -> float:
    """Return the greatest true positive rate with an observed false one of at most `rate`."""
    allowed = int(np.floor(rate * len(others) + 1e-9))
    return float((members > _after(others, allowed)).mean())


def caught(members: Vector, others: Vector, rate: float) -> int | None:
    """Return how many members lie above a threshold whose false positive rate is `rate`.

    The threshold is the lowest of the others' scores for which a false positive rate of at
    most `rate` is shown at 95 %; no member takes part in choosing it. None where there are
    too few others.
    """
    allowed = flags_allowed(len(others), rate)
    return None if allowed is None else int((members > _after(others, allowed)).sum())


def _after(others: Vector, flagged: int) -> float:
    """Return the score that at most `flagged` others exceed."""
    return float(np.sort(others)[::-1][flagged]) if flagged < len(others) else -np.inf


def _below(scores: Vector, others: Vector) -> Vector:
    """Return for each score the share of `others` below it, equal ones counting half."""
    order = np.sort(others)
    less = np.searchsorted(order, scores, "left")
    upto = np.searchsorted(order, scores, "right")
    return (less + upto) / (2 * len(others))
