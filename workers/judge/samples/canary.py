"""The backdoor canary: does a trigger still lead to the class that it was planted for?

Unseen rows of other classes than the target carry the trigger. The attack success rate is the
share of them predicted as the target. So a client who planted it can see after leaving whether
the model forgot (Sommer et al., "Athena", PoPETs 2022).
"""

from dataclasses import dataclass

import numpy as np

from workers.arrays import Labels, Matrix
from workers.errors import RefusedError
from workers.judge.inference.intervals import Flags, Interval, clopper_pearson


@dataclass(frozen=True, slots=True, eq=False)
class CanaryClaim:
    """Logits (n, c) float64 on stamped rows before and after unlearning; target, a class.

    The rows are those of the claim's pool whose label is not the target, in its order, each
    stamped with the trigger. leaving: how many forget rows were planted, that is carry the
    trigger and the target's label; staying: how many stored training rows were.
    """

    target: int
    before: Matrix
    after: Matrix
    leaving: int
    staying: int


def check_canary(claim: CanaryClaim, labels: Labels) -> None:
    """Raise RefusedError unless the logits are of the rows that the labels (n,) select."""
    counts = (claim.target, claim.leaving, claim.staying)
    if any(type(count) is not int or count < 0 for count in counts):
        raise RefusedError("a canary needs a class, and planted rows counted from 0")
    for logits in (claim.before, claim.after):
        if logits.ndim != 2 or claim.target >= logits.shape[1]:
            raise RefusedError("a canary needs logits of rows, and a target among the classes")
        if logits.dtype != np.float64 or not np.isfinite(logits).all():
            raise RefusedError("the logits of the canary are not finite float64")
        if len(logits) != int((labels != claim.target).sum()):
            raise RefusedError("the canary was not on each unseen row of another class")


def hits(logits: Matrix, target: int) -> Flags:
    """Return which rows (n,) of logits (n, c) are predicted as the target."""
    found: Flags = logits.argmax(axis=1) == target
    return found


def success_interval(found: Flags, level: float) -> Interval:
    """Return the Clopper–Pearson interval of the share of hits."""
    return clopper_pearson(int(found.sum()), len(found), level)
