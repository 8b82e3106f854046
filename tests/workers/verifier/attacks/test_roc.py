"""What scores are worth: by hand, from the definitions, and by scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from workers.errors import RefusedError
from workers.verifier.attacks.roc import (
    advantage,
    auc,
    auc_interval,
    best_advantage,
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
    low, high = auc_interval(*delong(np.zeros(40), np.zeros(40)), 40, 0.05)
    assert low < 0.36
    assert high > 0.64


def test_the_interval_covers_what_it_promises() -> None:
    draws = np.random.default_rng(0)
    missed = 0
    for _ in range(600):
        area, variance = delong(draws.normal(1, 1, 150), draws.normal(0, 1, 150))
        low, high = auc_interval(area, variance, 150, 0.05)
        missed += not low < stats.norm.cdf(2**-0.5) < high
    assert 0.02 < missed / 600 < 0.08


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
