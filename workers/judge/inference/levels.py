"""How tests decide: equivalence within a margin, many tests at one level, many requests."""

from collections.abc import Callable, Sequence
from math import pi

from workers.errors import RefusedError
from workers.judge.inference.intervals import Interval, clopper_pearson


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
# Requests arrive without a known end, so the k-th may spend alpha·6/(π²k²): the sum over all k
# is alpha (Σ 1/k² = π²/6, Basel). The probability that any of a model's certificates passes
# wrongly is then at most alpha; later requests need larger samples, not a new policy.
def spent(alpha: float, requests_before: int) -> float:
    """Return the alpha of the request after `requests_before` earlier ones of the model.

    Raises RefusedError for a count that is not a whole number of at least 0.
    """
    if isinstance(requests_before, bool) or not isinstance(requests_before, int):
        raise RefusedError("the number of requests before is not a whole number")
    if requests_before < 0:
        raise RefusedError("the number of requests before is negative")
    return alpha * 6 / (pi * (requests_before + 1)) ** 2
