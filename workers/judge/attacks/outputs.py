"""What an attack sees of a model: logits, and the quantities derived from them.

All functions take logits (n, c) float64, finite, c >= 2, and labels (n,) int64, and return one
float64 for each row. They stay on logits: a softmax that has rounded to 0 or 1 no longer
distinguishes members.
"""

from dataclasses import dataclass

import numpy as np

from workers.arrays import Labels, Matrix
from workers.errors import RefusedError
from workers.judge.inference.intervals import Flags, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Logits (n, c) float64 of a model on rows with labels (n,) int64 from 0 to c - 1.

    Raises RefusedError for anything else, NaN and infinity included.
    """

    logits: Matrix
    labels: Labels

    def __post_init__(self) -> None:
        if self.logits.dtype != np.float64 or self.logits.ndim != 2:
            raise RefusedError("logits must be a float64 matrix, one row for each label")
        if self.labels.dtype != np.int64 or self.labels.shape != self.logits.shape[:1]:
            raise RefusedError("labels must be int64, exactly one for each row of logits")
        if self.logits.shape[1] < 2:
            raise RefusedError("logits must be of two classes or more")
        if not np.isfinite(self.logits).all():
            raise RefusedError("logits hold NaN or infinity")
        if len(self) and not 0 <= self.labels.min() <= self.labels.max() < self.logits.shape[1]:
            raise RefusedError("a label is none of the classes")

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> "Outputs":
        """Return the given rows, in the given order."""
        return Outputs(self.logits[rows], self.labels[rows])


def log_softmax(logits: Matrix) -> Matrix:
    """Return the log of the softmax (n, c), with -inf where it is beyond float64."""
    with np.errstate(over="ignore"):
        shifted = logits - logits.max(axis=1, keepdims=True)
        found: Matrix = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def losses(of: Outputs) -> Vector:
    """Return the cross-entropy in nats, >= 0."""
    found: Vector = -log_softmax(of.logits)[np.arange(len(of)), of.labels]
    return found


def log_odds(of: Outputs) -> Vector:
    """Return log(p_y / (1 - p_y)) without cancellation: z_y minus the log-sum-exp of the rest.

    Carlini et al., S&P 2022, section V: nearly normal over models. Clipped to ±1e300, so that
    differences of two are finite.
    """
    own = of.logits[np.arange(len(of)), of.labels]
    rest = of.logits.copy()
    rest[np.arange(len(of)), of.labels] = -np.inf
    top = rest.max(axis=1)
    with np.errstate(over="ignore"):
        others = top + np.log(np.exp(rest - top[:, None]).sum(axis=1))
        found: Vector = np.clip(own - others, -1e300, 1e300)
    return found


def right(of: Outputs) -> Flags:
    """Return whether the largest logit is the label's; of equal ones the first counts."""
    return np.asarray(of.logits.argmax(axis=1) == of.labels)
