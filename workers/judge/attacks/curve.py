"""The empirical ROC curve of an attack at a bounded number of thresholds, with its band.

members (m,) and others (n,) are float64 scores, higher for members, never NaN. Equal scores
are on the same side of every threshold.
"""

import numpy as np

from lethe.certificates.attack_curve import MOST, Counts
from workers.judge.inference.intervals import Vector


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
