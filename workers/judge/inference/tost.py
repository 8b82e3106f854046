"""Equivalence by two one-sided tests (Schuirmann 1987): the whole interval lies in a margin.

An attack far below chance identifies the forgotten rows as well as one far above it, so the
margin around 1/2 has two sides. Each side is tested at half the level, which is stricter than
necessary; in return the certificate shows the very interval that decides.
"""

from workers.judge.inference.intervals import Interval, clopper_pearson


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
