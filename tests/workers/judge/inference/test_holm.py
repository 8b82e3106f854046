"""Holm's procedure against its printed form, on p-values."""

import numpy as np
import pytest

from workers.judge.inference.intervals import last_level, step_down


def printed(p_values: list[float], alpha: float) -> list[bool]:
    """Holm 1979: in rising order, stop at the first above alpha / (number left)."""
    rejected = [False] * len(p_values)
    for step, place in enumerate(np.argsort(p_values)):
        if p_values[place] > alpha / (len(p_values) - step):
            break
        rejected[place] = True
    return rejected


def by_levels(p_values: list[float], alpha: float) -> list[float | None]:
    return step_down([lambda level, p=p: p <= level for p in p_values], alpha)  # type: ignore[misc]


def test_equals_the_printed_procedure() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        p_values = list(rng.uniform(size=rng.integers(0, 9)) ** 4)
        found = by_levels(p_values, 0.05)
        assert [level is not None for level in found] == printed(p_values, 0.05)


def test_by_hand() -> None:
    # 0.01 <= .05/3; then 0.024 <= .05/2; then 0.06 > .05.
    levels = by_levels([0.024, 0.06, 0.01], 0.05)
    assert levels == [pytest.approx(0.025), None, pytest.approx(0.05 / 3)]
    assert last_level(levels, 0.05) == 0.05
    assert last_level(by_levels([0.04, 0.04], 0.05), 0.05) == 0.025


def test_a_wrong_rejection_is_rare_among_many_true_hypotheses() -> None:
    rng = np.random.default_rng(1)
    wrong = sum(any(by_levels(list(row), 0.05)) for row in rng.uniform(size=(4000, 6)))
    assert wrong / 4000 < 0.06
