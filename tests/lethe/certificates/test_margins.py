"""KLoM against numpy's histogram and scipy's relative entropy."""

from math import log

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import entropy

from lethe.certificates.margins import distances, klom


def reference(unlearned: NDArray[np.float64], retrained: NDArray[np.float64]) -> float:
    """Return it as the authors' evaluation computes it, with numpy's last edge."""
    ours, theirs = (np.clip(part, -100, 100) for part in (unlearned, retrained))
    whole = np.concatenate([ours, theirs])
    edges = np.linspace(whole.min(), whole.max(), 21)
    p, q = (np.histogram(part, edges)[0] / len(part) for part in (ours, theirs))
    return float(np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / q.clip(1e-5)), 0)))


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_relative_entropy_of_the_histograms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    unlearned = rng.normal(seed / 10, 1 + seed / 20, 64)
    retrained = rng.normal(0, 1, 48)
    found = klom(unlearned.tolist(), retrained.tolist())
    assert found == pytest.approx(reference(unlearned, retrained), rel=1e-12)


def test_where_all_bins_are_reached_scipy_agrees() -> None:
    rng = np.random.default_rng(0)
    unlearned, retrained = rng.uniform(0, 1, (2, 2000))
    edges = np.linspace(
        min(unlearned.min(), retrained.min()), max(unlearned.max(), retrained.max()), 21
    )
    p, q = (np.histogram(part, edges)[0] for part in (unlearned, retrained))
    assert (q > 0).all()
    found = klom(unlearned.tolist(), retrained.tolist())
    assert found == pytest.approx(float(entropy(p, q)), rel=1e-12)
    other = klom(retrained.tolist(), unlearned.tolist())
    assert abs(found - other) > 1e-6  # the direction matters


def test_models_that_never_meet_are_as_far_apart_as_it_goes() -> None:
    """All unlearned margins in a bin that no retrained model reaches: ln(1 / 1e-5)."""
    assert klom([5.0, 5.0], [0.0, 0.0]) == pytest.approx(log(1e5))
    assert klom([1e9], [-1e9]) == pytest.approx(log(1e5))
    # Half of them there: ½ ln(½ / 1) + ½ ln(½ / 1e-5).
    assert klom([0.0, 5.0], [0.0, 0.0]) == pytest.approx(log(0.5) + log(1e5) / 2)


def test_equal_margins_are_no_distance_and_the_largest_counts() -> None:
    assert klom([1.0, 2.0, 3.0], [3.0, 1.0, 2.0]) == 0
    assert klom([2.0], [2.0]) == 0
    # Without the last edge's bin the two would be equal.
    assert klom([0.0, 1.0], [0.0, 0.0]) > 0


def test_pairs_are_told_by_what_is_left_and_by_what_chance_makes() -> None:
    rng = np.random.default_rng(1)
    retrained = rng.normal(0, 1, 400).tolist()
    found = distances(rng.normal(6, 1, 400).tolist(), retrained, retrained)
    assert found.after == 0
    assert found.before > 5
    assert found.noise == klom(retrained[200:], retrained[:200])
    assert 0 < found.noise < 0.5
