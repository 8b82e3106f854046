"""ROC curves with bands: against scikit-learn, SciPy, and simulated scores of known laws."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_curve

from lethe.certificates.attack_curve import MOST, AttackCurve
from workers.judge.attacks.roc import curve, reach

rng = np.random.default_rng(11)
CASES = [
    (rng.normal(0.5, 1, 40), rng.normal(0, 1, 60)),
    (rng.normal(2, 1, 900), rng.normal(0, 1, 700)),
    (rng.integers(0, 4, 300).astype(float), rng.integers(0, 5, 500).astype(float)),  # ties
    (np.r_[rng.normal(size=20), np.inf, -np.inf], np.r_[rng.normal(size=9), np.inf, -np.inf]),
    (np.zeros(5), np.zeros(7)),
    (np.array([1.0]), np.array([0.0])),
]


@pytest.mark.parametrize(("members", "others"), CASES)
def test_points_are_on_the_curve_and_its_other_points_between_them(
    members: np.ndarray, others: np.ndarray
) -> None:
    found = curve(members, others)
    assert 2 <= len(found) <= MOST
    assert (found[0], found[-1]) == ((0, 0), (len(others), len(members)))
    places = np.r_[np.inf, np.unique(np.r_[members, others])[::-1], -np.inf]
    full = {(int((others > t).sum()), int((members > t).sum())) for t in places}
    full.add((len(others), len(members)))  # below all, -inf included
    assert set(found) <= full
    for false, true in full:
        assert any(a[0] <= false <= b[0] and a[1] <= true <= b[1] for a, b in pairwise(found))
    if np.isfinite(members).all() and np.isfinite(others).all():
        truth = np.r_[np.ones(len(members)), np.zeros(len(others))]
        x, y, _ = roc_curve(truth, np.r_[members, others], drop_intermediate=False)
        theirs = {
            (round(a * len(others)), round(b * len(members))) for a, b in zip(x, y, strict=True)
        }
        assert set(found) <= theirs
        if len(full) <= MOST // 2:
            assert set(found) == theirs


def test_without_ties_neighbours_are_close() -> None:
    found = curve(*CASES[1])
    steps = [(b[0] - a[0]) / 700 + (b[1] - a[1]) / 900 for a, b in pairwise(found)]
    assert max(steps) <= 2 / (MOST - 1) + 2 / 700


@pytest.mark.parametrize("size", [40, 300, 5000])
@pytest.mark.parametrize("level", [0.05, 0.001])
def test_the_reach_covers_what_kolmogorovs_law_gives(size: int, level: float) -> None:
    """SciPy knows the exact law of the distance that the band must reach."""
    found = reach(size, level)
    assert stats.kstwo.sf(found, size) <= level / 2
    exact = stats.kstwo.isf(level / 2, size)
    assert exact <= found <= 1.05 * exact


def missed(narrower: float, draws: int = 400) -> float:
    """Return how often a band misses the curve of two normal laws somewhere."""
    grid = np.linspace(0.002, 0.998, 499)
    truth = stats.norm.cdf(0.8 + stats.norm.ppf(grid))
    generator, count = np.random.default_rng(5), 0
    for _ in range(draws):
        members, others = generator.normal(0.8, 1, 150), generator.normal(0, 1, 100)
        widths = [reach(len(side), 0.05) / narrower for side in (others, members)]
        counts = curve(members, others)
        stated = AttackCurve(150, 100, counts, counts, (f"{widths[0]:.4f}", f"{widths[1]:.4f}"))
        lower, upper = stated.band(counts)
        count += not (
            (edge(lower, grid, highest=False) <= truth + 1e-9).all()
            and (truth <= edge(upper, grid, highest=True) + 1e-9).all()
        )
    return count / draws


def edge(
    corners: tuple[tuple[float, float], ...], grid: np.ndarray, highest: bool
) -> np.ndarray:
    """Return the height of a staircase at each point: the wider choice at a step."""
    x, y = np.array(corners).T
    places = np.searchsorted(x, grid, "right") - 1 if highest else np.searchsorted(x, grid)
    heights: np.ndarray = y[np.minimum(places, len(y) - 1)]
    return heights


def test_the_whole_true_curve_lies_in_the_band() -> None:
    assert missed(1.0) <= 0.05
    assert missed(3.0) > 0.3, "a band that is too narrow is seen here"
