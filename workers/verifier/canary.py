"""The backdoor canary: does a trigger still lead to the class that it was planted for?

Rows carry the trigger, and belong to other classes than the target. The attack success rate
is the share predicted as the target.
"""

from dataclasses import dataclass

import numpy as np

from workers.arrays import Matrix
from workers.errors import RefusedError
from workers.verifier.intervals import Interval, clopper_pearson


@dataclass(frozen=True, slots=True, eq=False)
class CanaryClaim:
    """Logits (n, c) float64 on triggered rows before and after unlearning; target, a class."""

    target: int
    before: Matrix
    after: Matrix


def successes(logits: Matrix, target: int) -> int:
    """Return how many rows are predicted as the target. Raises RefusedError if unreadable."""
    if logits.ndim != 2 or not len(logits) or not 0 <= target < logits.shape[1]:
        raise RefusedError("a canary needs triggered rows, and a target among the classes")
    if logits.dtype != np.float64 or not np.isfinite(logits).all():
        raise RefusedError("the logits of the canary are not finite float64")
    return int((logits.argmax(axis=1) == target).sum())


def success_rate(logits: Matrix, target: int, level: float) -> tuple[float, Interval]:
    """Return the attack success rate and its Clopper–Pearson interval."""
    count = successes(logits, target)
    return count / len(logits), clopper_pearson(count, len(logits), level)
