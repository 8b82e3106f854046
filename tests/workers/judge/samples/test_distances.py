"""Distances between models by hand and by scipy."""

from math import log

import numpy as np
import pytest
from scipy import stats

from workers.errors import RefusedError
from workers.judge.attacks.outputs import Outputs
from workers.judge.samples.distances import (
    DISTANCES,
    accuracy_difference,
    agreements,
    kl_divergences,
    parameter_gap,
    squared_gaps,
)

rng = np.random.default_rng(2)
ONE, TWO = rng.normal(size=(2, 200, 4))
LABELS = rng.integers(0, 4, 200)


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def test_kl_is_of_the_retrained_to_the_published() -> None:
    published, retrained = np.log([[0.5, 0.5]]), np.log([[0.9, 0.1]])
    want = 0.9 * log(0.9 / 0.5) + 0.1 * log(0.1 / 0.5)
    assert kl_divergences(published, retrained) == pytest.approx([want])
    assert kl_divergences(retrained, published) != pytest.approx([want])
    by_scipy = stats.entropy(softmax(TWO), softmax(ONE), axis=1)
    assert kl_divergences(ONE, TWO) == pytest.approx(by_scipy)


def test_kl_at_the_ends() -> None:
    sure = np.array([[3000.0, 0.0]])
    assert list(kl_divergences(sure, sure)) == [0.0]
    assert list(kl_divergences(sure, -sure)) == [3000.0]
    top = np.finfo(np.float64).max
    assert list(kl_divergences(np.array([[top, -top]]), np.array([[-top, top]]))) == [np.inf]


def test_the_others_by_hand() -> None:
    published, retrained = (
        np.array([[1.0, 2.0], [0.0, 4.0]]),
        np.array([[3.0, 2.0], [0.0, 1.0]]),
    )
    assert list(squared_gaps(published, retrained)) == [4.0, 9.0]
    assert list(agreements(published, retrained)) == [False, True]
    assert parameter_gap(np.array([3.0, 0.0]), np.array([0.0, 4.0])) == (5.0, 1.25)


@pytest.mark.parametrize("name", sorted(DISTANCES))
def test_every_distance_lies_in_its_interval_and_vanishes_between_equals(name: str) -> None:
    distance = DISTANCES[name][1]
    one, two = Outputs(ONE, LABELS), Outputs(TWO, LABELS)
    value, (low, high) = distance(one, two, 0.05)
    assert 0 <= low <= value <= high
    assert value > 0 or name.endswith("accuracy-gap")
    same, (low, high) = distance(one, one, 0.05)
    assert same == 0.0 == max(0.0, low)
    assert high < 0.05


def test_an_accuracy_gap_has_no_sign() -> None:
    right = np.eye(4)[LABELS]
    wrong = right.copy()
    wrong[:40] = -wrong[:40]
    one, two = Outputs(right, LABELS), Outputs(wrong, LABELS)
    gap = DISTANCES["forget-accuracy-gap"][1]
    assert gap(one, two, 0.05) == gap(two, one, 0.05)
    value, (low, high) = gap(one, two, 0.05)
    assert value == pytest.approx(0.2)
    assert low < 0.2 < high


def test_a_difference_of_accuracies_is_paired_and_has_a_sign() -> None:
    # Of 40 rows both have 20 right; of the others the published one has 3, the retrained 9.
    labels = np.zeros(40, dtype=np.int64)
    published, retrained = np.tile([[0.0, 1.0]], (2, 40, 1))
    published[:23], retrained[:20], retrained[31:] = [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]
    ours, theirs = Outputs(published, labels), Outputs(retrained, labels)
    value, (low, high) = accuracy_difference(ours, theirs, 0.05)
    assert value == pytest.approx((23 - 29) / 40)
    won, lost = (stats.binomtest(count, 40).proportion_ci(0.975, "exact") for count in (3, 9))
    assert (low, high) == pytest.approx((won.low - lost.high, won.high - lost.low))
    back, ends = accuracy_difference(theirs, ours, 0.05)
    assert (back, ends) == (-value, (-high, -low))
    # If one model is right wherever the other is, the same difference has a smaller interval.
    nested = np.tile([[0.0, 1.0]], (40, 1))
    nested[:29] = [1.0, 0.0]
    inside = accuracy_difference(ours, Outputs(nested, labels), 0.05)[1]
    assert inside[1] - inside[0] < high - low


@pytest.mark.parametrize("other", [np.zeros((3, 4)), np.zeros((200, 3)), np.zeros(200)])
def test_other_rows_are_refused(other: np.ndarray) -> None:
    for measure in (kl_divergences, squared_gaps, agreements):
        with pytest.raises(RefusedError):
            measure(ONE, other)
    with pytest.raises(RefusedError):
        parameter_gap(np.zeros(3), np.zeros(3))
    with pytest.raises(RefusedError):
        parameter_gap(np.ones(3), np.ones(4))
