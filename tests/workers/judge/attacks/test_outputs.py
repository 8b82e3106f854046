"""Quantities derived from logits, against sums in long arithmetic."""

from fractions import Fraction
from math import exp, log

import numpy as np
import pytest

from workers.errors import RefusedError
from workers.judge.attacks.outputs import Outputs, log_odds, log_softmax, losses, right

LOGITS = np.log(np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]])) + np.array([[3.0], [-5.0]])


def test_by_hand() -> None:
    of = Outputs(LOGITS, np.array([0, 2]))
    assert np.exp(log_softmax(LOGITS)) == pytest.approx(
        np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]])
    )
    assert losses(of) == pytest.approx([-log(0.7), log(4)])
    assert log_odds(of) == pytest.approx([log(7 / 3), log(1 / 3)])
    assert list(right(of)) == [True, False]


def test_the_surest_rows_stay_apart() -> None:
    # p_y rounds to 1 from 37 on; its log-odds do not.
    of = Outputs(np.array([[50.0, 0.0], [60.0, 0.0], [700.0, -700.0]]), np.zeros(3, np.int64))
    assert list(log_odds(of)) == [50.0, 60.0, 1400.0]
    # One million-th part of e^-50, from the exact series.
    assert losses(of)[0] == pytest.approx(float(Fraction(exp(-50))), abs=1e-16)


def test_the_largest_float_overflows_nothing() -> None:
    top = np.finfo(np.float64).max
    of = Outputs(np.array([[top, -top], [-top, top], [top, top]]), np.zeros(3, np.int64))
    assert list(losses(of)) == [0.0, np.inf, pytest.approx(log(2))]
    assert list(log_odds(of)) == [1e300, -1e300, 0.0]


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (np.zeros((2, 3), np.float32), np.zeros(2, np.int64)),
        (np.zeros(3), np.zeros(3, np.int64)),
        (np.zeros((2, 3)), np.zeros(2, np.int32)),
        (np.zeros((2, 3)), np.zeros(3, np.int64)),
        (np.zeros((2, 3)), np.zeros((2, 1), np.int64)),
        (np.zeros((2, 1)), np.zeros(2, np.int64)),
        (np.zeros((2, 3)), np.array([0, 3])),
        (np.zeros((2, 3)), np.array([-1, 0])),
        (np.full((2, 3), np.nan), np.zeros(2, np.int64)),
        (np.full((2, 3), np.inf), np.zeros(2, np.int64)),
    ],
)
def test_what_are_no_outputs_is_refused(logits: np.ndarray, labels: np.ndarray) -> None:
    with pytest.raises(RefusedError):
        Outputs(logits, labels)
