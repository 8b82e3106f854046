"""The input and the output of a membership inference attack.

An attack may use the model's outputs on rows known to be members (retained training rows) and
known not to be (`others`, held out and not matched), and fixes its threshold on them. Only then
it scores forget rows and their matched non-members, which are in neither group.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from workers.judge.attacks.outputs import Outputs
from workers.judge.inference.intervals import Flags, Vector


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Outputs of m separately trained models on the tested rows: log-odds (m, n) float64.

    The n rows are the forget rows, then their matched non-members, then the known non-members;
    included (m, n) tells which model was trained on which row.
    """

    log_odds: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    included: np.ndarray[tuple[int, int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """One model under attack: outputs on forget, matched unseen and known rows."""

    forget: Outputs
    unseen: Outputs
    members: Outputs
    others: Outputs
    references: References | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Higher means more like a member: forget (m,) and unseen (n,) float64.

    threshold: a row above it is classified as a member; None if it cannot be fixed beforehand.
    """

    forget: Vector
    unseen: Vector
    threshold: float | None

    def correct(self) -> tuple[Flags, Flags]:
        """Return which forget and which unseen rows are classified correctly."""
        assert self.threshold is not None
        return self.forget > self.threshold, self.unseen <= self.threshold


Attack = Callable[[Setting], Scores]


def best_threshold(members: Vector, others: Vector) -> float:
    """Return the threshold t with the greatest share of members > t plus others <= t.

    Both (n,) finite. Half-way between two observed scores; the least of equally good ones.
    """
    scores = np.concatenate([members, others])
    places, where = np.unique(scores, return_inverse=True)
    inside = np.bincount(where[: len(members)], minlength=len(places))
    outside = np.bincount(where[len(members) :], minlength=len(places))
    # In whole numbers: equal shares must not differ by rounding.
    below = outside.cumsum() * len(members) - inside.cumsum() * len(others)
    best = int(np.argmax(below))
    following = min(best + 1, len(places) - 1)
    return float(places[best] / 2 + places[following] / 2)
