"""Minimum sizes against sums over the binomial and against simulation."""

import numpy as np
import pytest
from scipy import stats

from workers.errors import RefusedError
from workers.judge.attacks.roc import auc_interval, delong
from workers.judge.inference.intervals import around_chance, tost, within
from workers.judge.inference.sizes import (
    accuracy_power,
    auc_power,
    flags_allowed,
    minimum_guesses,
    minimum_pairs,
    minimum_unseen,
)


@pytest.mark.parametrize(("guesses", "tau", "level"), [(276, 0.1, 0.05), (91, 0.2, 0.01)])
def test_power_is_the_chance_of_acceptance(guesses: int, tau: float, level: float) -> None:
    want = sum(
        stats.binom.pmf(k, guesses, 0.5)
        for k in range(guesses + 1)
        if tost(k, guesses, tau, level)
    )
    assert accuracy_power(guesses, tau, level) == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("guesses", [0, 1, 10])
def test_a_handful_has_no_power(guesses: int) -> None:
    assert accuracy_power(guesses, 0.1, 0.05) == 0.0
    assert auc_power(guesses, 0.1, 0.05) == 0.0


# The documented sizes: 95 % intervals, and eight of them.
@pytest.mark.parametrize(
    ("tau", "level", "want"),
    [
        (0.10, 0.05, 276),
        (0.05, 0.05, 1070),
        (0.02, 0.05, 6606),
        (0.10, 0.05 / 8, 408),
        (0.05, 0.05 / 8, 1632),
        (0.02, 0.05 / 8, 10164),
    ],
)
def test_minimum_guesses(tau: float, level: float, want: int) -> None:
    assert minimum_guesses(tau, level) == want
    assert accuracy_power(want, tau, level) >= 0.8 > accuracy_power(want - 2, tau, level)
    normal = ((stats.norm.isf(level / 2) + stats.norm.isf(0.1)) / (2 * tau)) ** 2
    assert normal < want < 1.06 * normal


def test_the_auc_needs_four_thirds_of_it() -> None:
    pairs = minimum_pairs(0.1, 0.05)
    assert auc_power(pairs, 0.1, 0.05) >= 0.8 > auc_power(pairs - 2, 0.1, 0.05)
    assert 2 * pairs / 263 == pytest.approx(4 / 3, abs=0.02)


def test_the_power_of_the_auc_by_simulation() -> None:
    rng, pairs, shown = np.random.default_rng(5), minimum_pairs(0.1, 0.05), 0
    for _ in range(400):
        members, others = rng.normal(size=(2, pairs))
        interval = auc_interval(*delong(members, others), pairs, 0.05)
        shown += within(interval, around_chance(0.1))
    assert 0.74 < shown / 400 < 0.86


def test_no_size_shows_an_absurd_margin() -> None:
    with pytest.raises(RefusedError):
        minimum_guesses(1e-4, 0.05)


def test_unseen_rows_for_a_false_positive_rate() -> None:
    assert minimum_unseen(0.01) == 299
    assert minimum_unseen(0.001) == 2995
    assert flags_allowed(298, 0.01) is None
    assert flags_allowed(299, 0.01) == 0
    assert flags_allowed(2995, 0.001) == 0


@pytest.mark.parametrize("unseen", [299, 472, 473, 1000, 5000])
def test_allowed_flags_prove_the_rate(unseen: int) -> None:
    allowed = flags_allowed(unseen, 0.01)
    assert allowed is not None
    upper = stats.binomtest(allowed, unseen, alternative="less").proportion_ci(0.95, "exact")
    more = stats.binomtest(allowed + 1, unseen, alternative="less").proportion_ci(0.95, "exact")
    assert upper.high <= 0.01 < more.high
