"""Lower bounds on ε against values computed by hand and scipy's beta distribution."""

from math import inf, log

import numpy as np
import pytest
from scipy.stats import beta, norm

from workers.errors import RefusedError
from workers.judge import algorithm_audit
from workers.judge.algorithm_audit import attack, bound, judge, resolution

FAR = [0.0, 1.0] * 8


@pytest.mark.parametrize(
    ("trials", "confidence", "epsilon"),
    [
        # By hand: u = 1 - 0.025^(1/n), ε = ln((1 - u) / u).
        (64, 0.95, 2.8246),
        (256, 0.95, 4.2326),
        (32, 0.95, 2.1022),
        (8, 0.95, 0.5347),
        (64, 0.99, 2.4498),
        (2, 0.95, 0.0),  # u above ½: so few prove nothing
    ],
)
def test_the_most_that_trials_without_an_error_show(
    trials: int, confidence: float, epsilon: float
) -> None:
    assert resolution(trials, confidence, 0.0) == pytest.approx(epsilon, abs=5e-5)


@pytest.mark.parametrize(("positives", "negatives"), [(1, 20), (20, 1), (3, 3), (0, 31)])
def test_a_bound_is_that_of_the_better_direction(positives: int, negatives: int) -> None:
    trials, delta = 32, 0.01
    fpr = beta.ppf(0.975, positives + 1, trials - positives)
    fnr = beta.ppf(0.975, negatives + 1, trials - negatives)
    wanted = max(
        (1 - delta - fnr) / fpr,
        (1 - delta - fpr) / fnr,
    )
    found = bound(positives, negatives, trials, 0.95, delta)
    assert (found.fpr_upper, found.fnr_upper) == pytest.approx((fpr, fnr))
    assert found.epsilon == pytest.approx(max(0.0, log(wanted) if wanted > 0 else 0.0))


def test_errors_as_of_a_coin_prove_nothing_and_delta_only_lowers() -> None:
    assert bound(16, 16, 32, 0.95, 0.0).epsilon == 0
    assert bound(32, 32, 32, 0.95, 0.0).epsilon == 0
    assert bound(0, 0, 64, 0.95, 0.5).epsilon < bound(0, 0, 64, 0.95, 0.0).epsilon


def test_the_bound_of_two_known_normals_holds_and_is_not_idle() -> None:
    """N(1, 1) against N(0, 1): (ε, δ) of the Gaussian mechanism (Balle and Wang 2018, eq. 6)."""
    delta = 0.1
    true = next(
        e
        for e in np.arange(0, 6, 0.01)
        if norm.cdf(0.5 - e) - np.exp(e) * norm.cdf(-0.5 - e) <= delta
    )
    rng = np.random.default_rng(0)
    found = [
        attack(rng.normal(1, 1, 200).tolist(), rng.normal(0, 1, 200).tolist(), 0.95, delta)
        for _ in range(40)
    ]
    assert sum(one.epsilon > true for one in found) <= 5  # 2 are expected at most
    assert sum(one.epsilon > 0 for one in found) >= 20


def test_worlds_of_another_spread_are_told_apart_too() -> None:
    rng = np.random.default_rng(1)
    wide, narrow = rng.normal(0, 10, 128).tolist(), rng.normal(0, 0.1, 128).tolist()
    assert attack(wide, narrow, 0.95, 0.0).epsilon > 1


def test_the_second_half_judges_a_test_that_only_the_first_half_made() -> None:
    apart, swapped = [10.0, 11.0] * 8, [0.0, 1.0] * 8
    fitted = [*apart, *swapped], [*swapped, *apart]
    found = attack(*fitted, 0.95, 0.0)
    assert (found.false_positives, found.false_negatives, found.trials) == (16, 16, 16)
    assert found.epsilon == 0
    # A threshold that had seen the second half would lie below 4.
    found = attack([*apart, *[4.0] * 16], [0.0, 1.0] * 16, 0.95, 0.0)
    assert (found.false_positives, found.false_negatives) == (0, 16)


def test_results_by_name() -> None:
    near, away = FAR, [value + 9 for value in FAR]
    assert judge(away, away, near, 0.95, 0.0).result == "LEAK"
    clean = judge(away, near, near, 0.95, 0.0)
    assert clean.result == "NOTHING-FOUND"
    assert clean.before.epsilon == clean.resolution > 0
    # The attack does not even find the target in the model that learned it.
    assert judge(near, near, near, 0.95, 0.0).result == "INCONCLUSIVE"


def test_a_method_that_goes_too_far_is_told_apart_as_well() -> None:
    below = [value - 9 for value in FAR]
    assert judge(FAR, below, FAR, 0.95, 0.0).result == "LEAK"


def test_what_is_no_audit_is_refused() -> None:
    with pytest.raises(RefusedError, match="16 whole pairs"):
        judge(FAR[:15], FAR[:15], FAR[:15], 0.95, 0.0)
    with pytest.raises(RefusedError, match="16 whole pairs"):
        judge(FAR, FAR, FAR[:15], 0.95, 0.0)
    with pytest.raises(RefusedError, match="no number"):
        judge(FAR, [*FAR[:15], inf], FAR, 0.95, 0.0)


def test_the_fewest_pairs_can_show_something() -> None:
    half = algorithm_audit.FEWEST // 2
    assert resolution(half, 0.95, 0.0) > 0.5
