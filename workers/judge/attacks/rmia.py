"""The robust membership inference attack of Zarifzadeh, Liu and Shokri (ICML 2024).

The score of x is the share of population rows z that x dominates (their equations 2 and 8):

    Pr_z[ (p(x|θ) / p(x)) / (p(z|θ) / p(z)) >= γ ],

where p(·) averages over reference models, equally many with and without the row. Offline only
models without x exist, and p(x) is ((1 + a) p_out(x) + (1 - a)) / 2 with their a = 0.3. The
population is the known non-members. No threshold is fixed beforehand.
"""

import numpy as np
from scipy.special import expit

from workers.arrays import Matrix
from workers.errors import RefusedError
from workers.judge.attacks.attack import Scores, Setting
from workers.judge.attacks.lira import FlagMatrix
from workers.judge.attacks.outputs import log_odds
from workers.judge.inference.intervals import Vector

GAMMA = 2.0
OFFLINE = 0.3
LEAST = 1e-300


def rmia(setting: Setting) -> Scores:
    """Score by dominance over the population. Raises RefusedError without references."""
    if setting.references is None:
        raise RefusedError("no reference models: the attack cannot be run")
    parts = (setting.forget, setting.unseen, setting.others)
    target = expit(np.concatenate([log_odds(part) for part in parts]))
    reference = expit(setting.references.log_odds)
    ratios = target / expected(reference, setting.references.included)
    first, last = len(setting.forget), len(setting.forget) + len(setting.unseen)
    scores = dominance(ratios[:last], ratios[last:])
    return Scores(scores[:first], scores[first:], None)


def expected(reference: Matrix, included: FlagMatrix) -> Vector:
    """Return p(x) (n,) from the probabilities reference (m, n) of the true class.

    Raises RefusedError if a row has no model that was trained without it.
    """
    inside, outside = included.sum(axis=0), (~included).sum(axis=0)
    if outside.size == 0 or outside.min() < 1:
        raise RefusedError("a row needs a reference model that was trained without it")
    out = np.where(included, 0.0, reference).sum(axis=0) / outside
    if inside.min() >= 1:
        both = np.where(included, reference, 0.0).sum(axis=0) / inside
        out_and_in: Vector = np.maximum((out + both) / 2, LEAST)
        return out_and_in
    offline: Vector = np.maximum(((1 + OFFLINE) * out + (1 - OFFLINE)) / 2, LEAST)
    return offline


def dominance(ratios: Vector, population: Vector) -> Vector:
    """Return for each ratio (n,) the share of the population's (k,) it is γ times."""
    order = np.sort(population) * GAMMA
    return np.searchsorted(order, ratios, side="right") / len(population)
