"""Measures of scores: by hand, from the definitions, and by scikit-learn."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from workers.errors import RefusedError
from workers.judge.attacks.roc import (
    advantage,
    advantage_interval,
    auc,
    auc_interval,
    best_advantage,
    best_advantage_interval,
    caught,
    delong,
    tpr_at_fpr,
)

rng = np.random.default_rng(7)
CASES = [
    (rng.normal(0.5, 1, 40), rng.normal(0, 1, 60)),
    (rng.integers(0, 4, 30).astype(float), rng.integers(0, 5, 50).astype(float)),  # ties
    (np.r_[rng.normal(size=20), np.inf, -np.inf], np.r_[rng.normal(size=9), np.inf, -np.inf]),
    (np.zeros(5), np.zeros(7)),
]


def definition(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """DeLong 1988, equations 5 and 6, over all pairs."""
    wins = (members[:, None] > others) + 0.5 * (members[:, None] == others)
    rows, columns = wins.mean(axis=1), wins.mean(axis=0)
    return wins.mean(), rows.var(ddof=1) / len(rows) + columns.var(ddof=1) / len(columns)


@pytest.mark.parametrize(("members", "others"), CASES)
def test_auc_and_variance_are_those_of_the_definition(
    members: np.ndarray,
    others: np.ndarray,
) -> None:
    assert delong(members, others) == pytest.approx(definition(members, others), abs=1e-12)
    if np.isfinite(members).all():
        truth = np.r_[np.ones(len(members)), np.zeros(len(others))]
        scores = np.r_[members, others]
        assert auc(members, others) == pytest.approx(roc_auc_score(truth, scores))
        false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
        assert best_advantage(members, others) == pytest.approx((true - false).max())
        for rate in (0.0, 0.01, 0.1, 0.5):
            want = true[false <= rate].max()
            assert tpr_at_fpr(members, others, rate) == pytest.approx(want)


def test_by_hand() -> None:
    members, others = np.array([1.0, 3.0, 3.0, 4.0]), np.array([0.0, 2.0, 3.0, 3.5])
    # Wins: 1; 2 and a tie, twice; 4: 10 of 16.
    assert auc(members, others) == 10 / 16
    assert advantage(members, others, 2.5) == 3 / 4 - 2 / 4
    assert advantage(members, others, 3.0) == 1 / 4 - 1 / 4  # an equal score is not above
    assert tpr_at_fpr(members, others, 0.0) == 1 / 4
    assert tpr_at_fpr(members, others, 0.25) == 1 / 4
    assert tpr_at_fpr(members, others, 0.5) == 3 / 4
    assert best_advantage(members, others) == 0.25


def test_the_interval_is_normal_with_delongs_variance() -> None:
    area, variance = delong(*CASES[0])
    want = stats.norm.interval(0.95, area, variance**0.5)
    assert auc_interval(area, variance, 40, 0.05) == pytest.approx(want, abs=1e-9)


def test_without_variance_the_interval_is_that_of_a_proportion() -> None:
    area, variance = delong(np.arange(20.0) + 100, np.arange(30.0))
    assert (area, variance) == (1.0, 0.0)
    assert auc_interval(area, variance, 20, 0.05) == pytest.approx((0.025**0.05, 1.0))
    assert auc_interval(0.0, 0.0, 20, 0.05) == pytest.approx((0.0, 1 - 0.025**0.05))
    low, high = auc_interval(*delong(np.zeros(40), np.zeros(40)), 40, 0.05)
    assert low < 0.36
    assert high > 0.64


def misses(
    area: float, size: int, level: float, trials: int, interval: Any = auc_interval
) -> float:
    """Return how often a binormal AUC lies outside of its interval."""
    draws = np.random.default_rng(0)
    shift = stats.norm.ppf(area) * 2**0.5
    found = 0
    for _ in range(trials):
        sides = draws.normal(shift, 1, size), draws.normal(0, 1, size)
        low, high = interval(*delong(*sides), size, level)
        found += not low < area < high
    return found / trials


@pytest.mark.parametrize("size", [29, 150])
def test_the_interval_covers_what_it_promises(size: int) -> None:
    assert 0.005 < misses(0.7, size, 0.05, 600) < 0.08


@pytest.mark.parametrize(("area", "size"), [(0.9, 29), (0.98, 60), (0.99, 300), (0.01, 100)])
def test_it_covers_near_the_ends_too(area: float, size: int) -> None:
    assert misses(area, size, 0.05, 300) < 0.03


def test_near_the_ends_delongs_alone_would_not() -> None:
    def alone(area: float, variance: float, size: int, level: float) -> Any:
        return stats.norm.interval(1 - level, area, variance**0.5)

    assert 0.06 < misses(0.99, 300, 0.05, 600, alone) < 0.11
    assert 0.01 < misses(0.99, 300, 0.0025, 600, alone) < 0.04


def test_one_row_out_of_order_says_no_more_than_none() -> None:
    ordered = np.arange(50.0) + 100
    odd = np.append(ordered[1:], -1.0)
    none, one = (delong(side, np.arange(50.0)) for side in (ordered, odd))
    assert auc_interval(*one, 50, 0.05)[0] < auc_interval(*none, 50, 0.05)[0]


@pytest.mark.parametrize("size", [29, 299, 3000])
def test_only_near_the_ends_the_interval_is_another_than_delongs(size: int) -> None:
    for area in np.linspace(0, 1, 101):
        variance = area * (1 - area) / size
        if not variance:
            continue
        plain = np.clip(stats.norm.interval(0.9975, area, variance**0.5), 0, 1)
        low, high = auc_interval(area, variance, size, 0.0025)
        assert low <= plain[0] + 1e-12
        assert high >= plain[1] - 1e-12
        if size * min(area, 1 - area) >= 10.001:
            assert (low, high) == pytest.approx(tuple(plain), abs=1e-9)
    if size >= 299:
        # No verdict rests on the difference: no margin reaches beyond 1/2 ± 0.25.
        for level in (0.05, 1e-12):
            assert auc_interval(1 - 10 / size, 0.0, size, level)[0] > 0.75
            assert auc_interval(10 / size, 0.0, size, level)[1] < 0.25


def test_one_score_has_no_variance() -> None:
    with pytest.raises(RefusedError):
        delong(np.ones(1), np.zeros(5))


def test_a_rate_that_is_proven_flags_fewer_than_one_observed() -> None:
    others = np.arange(1000.0)
    members = np.array([999.5, 995.5, 992.5, 500.0])
    assert tpr_at_fpr(members, others, 0.01) == 3 / 4  # ten may be above
    assert caught(members, others, 0.01) == 2  # four may: 1000 rows prove no more
    assert caught(members, np.arange(298.0), 0.01) is None
    assert caught(np.array([298.0, 299.0]), np.arange(299.0), 0.01) == 1


def test_the_interval_of_a_fixed_threshold_by_hand() -> None:
    members, others = np.repeat([0.0, 1.0], [12, 28]), np.repeat([0.0, 1.0], [45, 15])
    true, false = stats.binomtest(28, 40), stats.binomtest(15, 60)
    rates = [
        found.proportion_ci(confidence_level=0.975, method="exact") for found in (true, false)
    ]
    want = rates[0].low - rates[1].high, rates[0].high - rates[1].low
    assert advantage_interval(members, others, 0.5, 0.05) == pytest.approx(want)
    none = 0.0125 ** (1 / 60) - 1, 1 - 0.0125 ** (1 / 40)  # no score is above
    assert advantage_interval(members, others, 1.0, 0.05) == pytest.approx(none)


def test_the_interval_of_the_best_threshold_by_hand() -> None:
    members, others = np.arange(200.0) + 100, np.arange(800.0) / 2
    best = stats.ks_2samp(members, others, alternative="less").statistic
    assert best_advantage(members, others) == pytest.approx(best)
    # Dvoretzky, Kiefer and Wolfowitz at a quarter of the level, Hoeffding at half.
    bands = (np.log(80) / 400) ** 0.5 + (np.log(80) / 1600) ** 0.5
    reach = (np.log(40) / 2 * (1 / 200 + 1 / 800)) ** 0.5
    want = best - bands, best + reach
    assert best_advantage_interval(members, others, 0.05) == pytest.approx(want)
    alike = best_advantage_interval(members, members, 0.05)
    assert alike == pytest.approx((0.0, (np.log(40) / 200) ** 0.5))
    apart = best_advantage_interval(members + 1000, others, 0.05)
    assert apart[1] == 1.0


@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("level", [0.05, 0.5])
def test_the_intervals_of_advantages_cover_what_they_promise(
    shift: float, level: float
) -> None:
    draws = np.random.default_rng(1)
    best = 2 * stats.norm.cdf(shift / 2) - 1
    fixed = stats.norm.cdf(shift - 1) - stats.norm.cdf(-1)
    missed = np.zeros(2)
    for _ in range(300):
        sides = draws.normal(shift, 1, 30), draws.normal(0, 1, 45)
        low, high = best_advantage_interval(*sides, level)
        missed[0] += not low <= best <= high
        low, high = advantage_interval(*sides, 1.0, level)
        missed[1] += not low <= fixed <= high
    assert (missed / 300 <= level).all()
