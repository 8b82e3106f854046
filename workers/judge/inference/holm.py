"""Holm's step-down procedure (Scand. J. Statist. 1979) over tests that are not p-values.

A test here says whether it rejects at a level, and a test that rejects at one level rejects at
every larger one. All tests that reject at alpha/r, with r left, are removed together: their
order cannot matter, since each later level is larger. The probability of any wrong rejection is
at most alpha, however the tests depend on each other.
"""

from collections.abc import Callable, Sequence


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
