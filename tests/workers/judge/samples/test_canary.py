"""The success rate of a planted backdoor, and what is none."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from workers.errors import RefusedError
from workers.judge.samples.canary import CanaryClaim, check_canary, hits, success_interval

LABELS = np.array([0, 1, 2, 1, 0])
GOOD = CanaryClaim(1, np.zeros((3, 3)), np.zeros((3, 3)), leaving=4, staying=0)


def test_by_hand() -> None:
    logits = np.array([[1.0, 2.0, 0.0]] * 3 + [[5.0, 2.0, 0.0]])
    found = hits(logits, 1)
    want = stats.binomtest(3, 4).proportion_ci(0.95, "exact")
    assert found.tolist() == [True, True, True, False]
    assert success_interval(found, 0.05) == pytest.approx((want.low, want.high))


def test_there_is_a_row_for_each_unseen_row_of_another_class() -> None:
    check_canary(GOOD, LABELS)
    for labels in (LABELS[:-1], np.array([1, 1, 2, 1, 0]), np.append(LABELS, 2)):
        with pytest.raises(RefusedError, match="each unseen row"):
            check_canary(GOOD, labels)


@pytest.mark.parametrize(
    "changes",
    [
        {"before": np.zeros(3)},
        {"after": np.zeros((2, 3))},
        {"after": np.zeros((3, 1))},
        {"before": np.full((3, 3), np.nan)},
        {"after": np.zeros((3, 3), np.float32)},
        {"target": 3},
        {"target": -1},
        {"target": True},
        {"leaving": -1},
        {"staying": 1.0},
    ],
)
def test_what_is_no_canary_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RefusedError):
        check_canary(replace(GOOD, **changes), LABELS)  # type: ignore[arg-type]
