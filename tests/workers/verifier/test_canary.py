"""The success rate of a planted backdoor."""

import numpy as np
import pytest
from scipy import stats

from workers.errors import RefusedError
from workers.verifier.canary import success_rate


def test_by_hand() -> None:
    logits = np.array([[1.0, 2.0, 0.0]] * 3 + [[5.0, 2.0, 0.0]])
    rate, interval = success_rate(logits, 1, 0.05)
    want = stats.binomtest(3, 4).proportion_ci(0.95, "exact")
    assert rate == 0.75
    assert interval == pytest.approx((want.low, want.high))


@pytest.mark.parametrize(
    ("logits", "target"),
    [
        (np.zeros((0, 3)), 0),
        (np.zeros(3), 0),
        (np.zeros((2, 3)), 3),
        (np.zeros((2, 3)), -1),
        (np.full((2, 3), np.nan), 0),
        (np.zeros((2, 3), np.float32), 0),
    ],
)
def test_what_is_no_canary_is_refused(logits: np.ndarray, target: int) -> None:
    with pytest.raises(RefusedError):
        success_rate(logits, target, 0.05)
