"""Equivalence: how often a leaking model passes for an honest one, summed exactly."""

import numpy as np
import pytest
from scipy import stats

from workers.judge.inference.intervals import apart, around_chance, tost, within

LEVEL = 0.05


def accepted(guesses: int, tau: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([tost(k, guesses, tau, LEVEL) for k in range(guesses + 1)])


@pytest.mark.parametrize(("guesses", "tau"), [(276, 0.1), (408, 0.1), (1070, 0.05)])
@pytest.mark.parametrize("side", [-1, 1])
def test_the_margin_itself_is_rarely_accepted(guesses: int, tau: float, side: int) -> None:
    chances = stats.binom.pmf(np.arange(guesses + 1), guesses, 0.5 + side * tau)
    wrong = float(chances[accepted(guesses, tau)].sum())
    assert 0 < wrong <= LEVEL / 2


def test_unequal_rows_are_accepted_no_more_often() -> None:
    # Hoeffding 1956: half the rows always identified, the others almost at chance; mean 0.6.
    guesses, tau = 276, 0.1
    chances = np.ones(1)
    for chance in [0.999] * (guesses // 4) + [(0.6 - 0.24975) / 0.75] * (guesses * 3 // 4):
        chances = np.convolve(chances, [1 - chance, chance])
    assert (chances @ np.arange(guesses + 1)) / guesses == pytest.approx(0.6)
    assert chances[accepted(guesses, tau)].sum() <= LEVEL / 2


def test_far_below_chance_is_no_better_than_far_above() -> None:
    assert tost(200, 400, 0.1, LEVEL)
    assert not tost(40, 400, 0.1, LEVEL)
    assert not tost(360, 400, 0.1, LEVEL)


def test_an_interval_is_inside_outside_or_neither() -> None:
    margin = around_chance(0.1)
    assert within((0.41, 0.59), margin)
    assert not apart((0.41, 0.59), margin)
    assert apart((0.61, 0.7), margin)
    assert apart((0.2, 0.39), margin)
    for undecided in ((0.3, 0.5), (0.5, 0.7), (0.3, 0.7), (0.4, 0.5), (0.6, 0.7)):
        assert not within(undecided, margin)
        assert not apart(undecided, margin)
