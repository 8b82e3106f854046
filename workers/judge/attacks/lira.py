"""The likelihood ratio attack of Carlini et al. (S&P 2022), on log-odds of reference models.

Online, if models with and without each row exist: log N(x; in) - log N(x; out), with threshold
0. Offline, if only models without it exist: how far x lies above them, in standard deviations,
without a threshold. With fewer than ENOUGH models on a side, one variance is used for all rows
(their section VI-B).
"""

import numpy as np

from workers.arrays import Matrix
from workers.errors import RefusedError
from workers.judge.attacks.attack import Scores, Setting
from workers.judge.attacks.outputs import log_odds
from workers.judge.inference.intervals import Vector

ENOUGH = 64
LEAST = 1e-6  # standard deviation: models that agree to the last bit are no evidence

FlagMatrix = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def lira(setting: Setting) -> Scores:
    """Score by likelihood ratio. Raises RefusedError without usable reference models."""
    if setting.references is None:
        raise RefusedError("no reference models: the attack cannot be run")
    size = len(setting.forget) + len(setting.unseen)
    target = np.concatenate([log_odds(setting.forget), log_odds(setting.unseen)])
    reference = setting.references.log_odds[:, :size]
    included = setting.references.included[:, :size]
    online = bool((included.sum(axis=0) >= 2).all())
    scores = likelihood_ratio(target, reference, included, online=online)
    split = len(setting.forget)
    return Scores(scores[:split], scores[split:], 0.0 if online else None)


def likelihood_ratio(
    target: Vector, reference: Matrix, included: FlagMatrix, *, online: bool
) -> Vector:
    """Return the scores (n,) of target (n,) log-odds by reference (m, n), included (m, n).

    Raises RefusedError if a row has fewer than two reference models on a required side.
    """
    mean, deviation = _normal(reference, ~included)
    with np.errstate(over="ignore", invalid="ignore"):
        out = (target - mean) / deviation
        if not online:
            return np.nan_to_num(out)
        mean, within = _normal(reference, included)
        inside = (target - mean) / within
        ratio = (out**2 - inside**2) / 2 + np.log(deviation) - np.log(within)
    return np.nan_to_num(ratio)


def _normal(values: Matrix, chosen: FlagMatrix) -> tuple[Vector, Vector]:
    """Return mean and standard deviation, (n,) each, of each row's chosen models."""
    count = chosen.sum(axis=0)
    if count.size == 0 or count.min() < 2:
        raise RefusedError("a row needs two reference models without it, and two with it")
    mean = np.where(chosen, values, 0.0).sum(axis=0) / count
    squares = np.where(chosen, (values - mean) ** 2, 0.0).sum(axis=0)
    if count.min() < ENOUGH:
        shared = squares.sum() / (count - 1).sum()
        return mean, np.full(len(mean), max(float(np.sqrt(shared)), LEAST))
    return mean, np.maximum(np.sqrt(squares / (count - 1)), LEAST)
