"""Intervals against scipy's own, and against their definitions."""

import itertools

import numpy as np
import pytest
from scipy import stats

from workers.errors import RefusedError
from workers.judge.inference.intervals import (
    FEW,
    chernoff_hoeffding,
    clopper_pearson,
    loss_interval,
    mean_interval,
)


@pytest.mark.parametrize("trials", [1, 2, 10, 299, 5000])
@pytest.mark.parametrize("level", [0.05, 0.002])
def test_clopper_pearson_is_that_of_scipy(trials: int, level: float) -> None:
    for successes in {0, 1, trials // 3, trials - 1, trials}:
        found = clopper_pearson(successes, trials, level)
        want = stats.binomtest(successes, trials).proportion_ci(1 - level, "exact")
        assert found == pytest.approx((want.low, want.high), abs=1e-12)


def test_clopper_pearson_by_hand() -> None:
    # None of n: the upper end is 1 - (level/2)^(1/n).
    want = 0.025**0.1
    assert clopper_pearson(0, 10, 0.05) == pytest.approx((0.0, 1 - want), abs=1e-14)
    assert clopper_pearson(10, 10, 0.05) == pytest.approx((want, 1.0), abs=1e-14)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (-1, 3), (4, 3), (1, -1)])
def test_impossible_counts_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(RefusedError):
        clopper_pearson(successes, trials, 0.05)


def test_hoeffdings_interval_ends_where_the_divergence_says() -> None:
    low, high = chernoff_hoeffding(0.9, 30, 0.05)
    for end in (low, high):
        both = [0.9, 0.1], [end, 1 - end]
        assert 30 * stats.entropy(*both) == pytest.approx(np.log(40))
    assert low < 0.9 < high
    # None of n: the upper end is 1 - (level/2)^(1/n), as Clopper's and Pearson's.
    assert chernoff_hoeffding(0.0, 10, 0.05) == pytest.approx((0.0, 1 - 0.025**0.1))
    assert chernoff_hoeffding(1.0, 10, 0.05) == pytest.approx((0.025**0.1, 1.0))


@pytest.mark.parametrize("trials", [1, 7, 40])
@pytest.mark.parametrize("level", [0.3, 0.05, 0.001])
def test_hoeffdings_interval_misses_no_more_than_promised(trials: int, level: float) -> None:
    ends = [chernoff_hoeffding(count / trials, trials, level) for count in range(trials + 1)]
    for mean in np.linspace(0.001, 0.999, 50):
        chances = stats.binom.pmf(np.arange(trials + 1), trials, mean)
        outside = [not low <= mean <= high for low, high in ends]
        assert chances[outside].sum() <= level
        exact = clopper_pearson(round(mean * trials), trials, level)
        wide = ends[round(mean * trials)]
        assert wide[0] <= exact[0] + 1e-12
        assert wide[1] >= exact[1] - 1e-12


@pytest.mark.parametrize(("mean", "trials"), [(0.5, 0), (-0.1, 3), (1.1, 3), (np.nan, 3)])
def test_impossible_means_are_refused(mean: float, trials: int) -> None:
    with pytest.raises(RefusedError):
        chernoff_hoeffding(mean, trials, 0.05)


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.random.default_rng(3).normal(2.0, 5.0, 17)
    want = stats.ttest_1samp(values, 0.0).confidence_interval(0.99)
    assert mean_interval(values, 0.01) == pytest.approx((want.low, want.high), rel=1e-9)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e308])
def test_a_mean_beyond_float64_says_nothing(value: float) -> None:
    assert mean_interval(np.array([1.0, value, value]), 0.05) == (-np.inf, np.inf)


def test_one_value_has_no_interval() -> None:
    with pytest.raises(RefusedError):
        mean_interval(np.array([1.0]), 0.05)


def test_few_changes_get_an_exact_interval_of_the_loss() -> None:
    before = np.ones(100, dtype=np.bool_)
    after = before.copy()
    after[: FEW - 1] = False
    low, high = loss_interval(before, after, 0.05)
    lost = stats.binomtest(FEW - 1, 100).proportion_ci(0.975, "exact")
    won = stats.binomtest(0, 100).proportion_ci(0.975, "exact")
    assert (low, high) == pytest.approx((lost.low - won.high, lost.high), abs=1e-12)


def test_many_changes_get_students() -> None:
    before = np.arange(400) % 2 == 0
    after = np.arange(400) % 5 != 0
    want = stats.ttest_rel(before.astype(float), after.astype(float)).confidence_interval(0.95)
    assert loss_interval(before, after, 0.05) == pytest.approx((want.low, want.high), rel=1e-9)


def test_intervals_of_smaller_levels_hold_those_of_larger_ones() -> None:
    before = np.arange(400) % 2 == 0
    levels = [0.2, 0.05, 0.01, 1e-4]
    for step in (3, 97):  # many changes, few changes
        ends = [loss_interval(before, before ^ (np.arange(400) % step == 0), x) for x in levels]
        for inner, outer in itertools.pairwise(ends):
            assert outer[0] < inner[0]
            assert inner[1] < outer[1]
