"""Distances between two models by their outputs: published and retrained, in this order.

Functional distances ignore that a network's units can be permuted; the parameter gap does not,
and is reported without ever deciding. Means carry Student's t interval, proportions Clopper and
Pearson's.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from workers.arrays import Matrix
from workers.errors import RefusedError
from workers.judge.attacks.outputs import Outputs, log_softmax, right
from workers.judge.inference.intervals import (
    Flags,
    Interval,
    Vector,
    clopper_pearson,
    loss_interval,
    mean_interval,
)


def kl_divergences(published: Matrix, retrained: Matrix) -> Vector:
    """Return KL(retrained ‖ published) of the softmaxes of each row (n,), in nats, >= 0."""
    _check(published, retrained)
    ours, theirs = log_softmax(published), log_softmax(retrained)
    weight = np.exp(theirs)
    with np.errstate(invalid="ignore", over="ignore"):
        terms = np.where(weight > 0, weight * (theirs - ours), 0.0)
    found: Vector = np.maximum(terms.sum(axis=1), 0.0)
    return found


def squared_gaps(published: Matrix, retrained: Matrix) -> Vector:
    """Return ‖z - z'‖² of each row's logits (n,); its mean is the logit MSE."""
    _check(published, retrained)
    with np.errstate(over="ignore"):
        found: Vector = ((published - retrained) ** 2).sum(axis=1)
    return found


def agreements(published: Matrix, retrained: Matrix) -> Flags:
    """Return for each row whether both models predict the same class."""
    _check(published, retrained)
    return np.asarray(published.argmax(axis=1) == retrained.argmax(axis=1))


def parameter_gap(published: Vector, retrained: Vector) -> tuple[float, float]:
    """Return ‖θ - θ'‖₂ and the same divided by ‖θ'‖₂, of flattened parameters.

    Raises RefusedError for vectors of different lengths, or a θ' of norm 0.
    """
    if published.ndim != 1 or published.shape != retrained.shape:
        raise RefusedError("both models must have the same number of parameters")
    norm = float(np.linalg.norm(retrained))
    if not norm > 0:
        raise RefusedError("the retrained model has no parameters to compare with")
    gap = float(np.linalg.norm(published - retrained))
    return gap, gap / norm


def accuracy_difference(
    published: Outputs, retrained: Outputs, level: float
) -> tuple[float, Interval]:
    """Return accuracy - accuracy' on the same rows, and its interval."""
    ours, theirs = right(published), right(retrained)
    return float(ours.mean()) - float(theirs.mean()), loss_interval(ours, theirs, level)


Distance = Callable[[Outputs, Outputs, float], tuple[float, Interval]]


def output_kl(published: Outputs, retrained: Outputs, level: float) -> tuple[float, Interval]:
    """Return the mean of the KL divergences and its interval."""
    values = kl_divergences(published.logits, retrained.logits)
    return _mean(values, level)


def logit_mse(published: Outputs, retrained: Outputs, level: float) -> tuple[float, Interval]:
    """Return the mean squared gap of the logits and its interval."""
    return _mean(squared_gaps(published.logits, retrained.logits), level)


def disagreement(
    published: Outputs, retrained: Outputs, level: float
) -> tuple[float, Interval]:
    """Return the share of rows predicted differently and its interval."""
    same = agreements(published.logits, retrained.logits)
    count = int((~same).sum())
    return count / len(same), clopper_pearson(count, len(same), level)


def accuracy_gap(
    published: Outputs, retrained: Outputs, level: float
) -> tuple[float, Interval]:
    """Return |accuracy - accuracy'| on the same rows, and its interval."""
    before, after = right(retrained), right(published)
    low, high = loss_interval(before, after, level)
    gap = abs(float(before.mean()) - float(after.mean()))
    return gap, (max(0.0, low, -high), max(high, -low))


Side = Literal["forget", "retained", "unseen"]
# By the rows that each is computed on. All are 0 between equal models, so that a limit is
# always the greatest value allowed.
DISTANCES: dict[str, tuple[Side, Distance]] = {
    "disagreement": ("unseen", disagreement),
    "forget-accuracy-gap": ("forget", accuracy_gap),
    "logit-mse": ("unseen", logit_mse),
    "output-kl": ("unseen", output_kl),
    "retained-accuracy-gap": ("retained", accuracy_gap),
    "test-accuracy-gap": ("unseen", accuracy_gap),
}


def _mean(values: Vector, level: float) -> tuple[float, Interval]:
    with np.errstate(over="ignore"):
        return float(values.mean()), mean_interval(values, level)


def _check(published: Matrix, retrained: Matrix) -> None:
    if published.ndim != 2 or published.shape != retrained.shape or not len(published):
        raise RefusedError("both models must answer the same rows, one at least")
