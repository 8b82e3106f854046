"""The metric attacks of Song and Mittal (USENIX Security 2021), a threshold for each class.

Confidence is p_y, used as its log-odds (a monotone change, so the same decisions). Modified
entropy, their equation 8, is small only for correct and confident answers:

    Mentr(p, y) = -(1 - p_y) log p_y - Σ_{i≠y} p_i log(1 - p_i).

The threshold of a class is fixed on known members and known non-members of that class, or on
all of them if it has too few. Scores are relative to the threshold of their class.
"""

from collections.abc import Callable

import numpy as np

from workers.arrays import Matrix
from workers.judge.attacks.attack import Scores, Setting, best_threshold
from workers.judge.attacks.outputs import Outputs, log_odds, log_softmax
from workers.judge.inference.intervals import Vector

ENOUGH = 30  # known rows of a class, on each side, for a separate threshold
LEAST = 1e-300  # of entropy, before its logarithm


def modified_entropy(of: Outputs) -> Vector:
    """Return Mentr (n,) in nats, >= 0; infinite where p_y is 0."""
    rows = np.arange(len(of))
    logs = log_softmax(of.logits)
    complement = _log_complement(of.logits)
    own = logs[rows, of.labels]
    terms = np.exp(logs) * complement
    terms[rows, of.labels] = 0.0
    with np.errstate(invalid="ignore"):
        weighted = np.where(own == 0, 0.0, -np.expm1(own) * own)
    found: Vector = -weighted - terms.sum(axis=1)
    return np.maximum(found, 0.0)


def song_confidence(setting: Setting) -> Scores:
    """Score by the confidence in the true class."""
    return _by_class(setting, log_odds)


def song_modified_entropy(setting: Setting) -> Scores:
    """Score by modified entropy; its logarithm, so that small values stay distinct."""
    return _by_class(setting, _sureness)


def _sureness(of: Outputs) -> Vector:
    entropy = np.clip(modified_entropy(of), LEAST, 1 / LEAST)
    found: Vector = -np.log(entropy)
    return found


def _by_class(setting: Setting, metric: Callable[[Outputs], Vector]) -> Scores:
    members, others = metric(setting.members), metric(setting.others)
    thresholds = np.full(setting.members.logits.shape[1], best_threshold(members, others))
    for label in range(len(thresholds)):
        inside = members[setting.members.labels == label]
        outside = others[setting.others.labels == label]
        if min(len(inside), len(outside)) >= ENOUGH:
            thresholds[label] = best_threshold(inside, outside)
    forget = metric(setting.forget) - thresholds[setting.forget.labels]
    unseen = metric(setting.unseen) - thresholds[setting.unseen.labels]
    return Scores(forget, unseen, 0.0)


def _log_complement(logits: Matrix) -> Matrix:
    """Return log(1 - p_i) (n, c), exact also where p_i rounds to 1."""
    rows = np.arange(len(logits))
    logs = log_softmax(logits)
    top = logits.argmax(axis=1)
    small = logs.copy()
    small[rows, top] = -np.inf
    found = np.log1p(-np.exp(small))
    # For the largest, 1 - p is the sum of the rest, relative to the second largest.
    second = small.max(axis=1)
    finite = np.where(np.isfinite(second), second, 0.0)
    with np.errstate(divide="ignore"):
        found[rows, top] = finite + np.log(np.exp(small - finite[:, None]).sum(axis=1))
    found = np.maximum(found, -1 / LEAST)
    return found
