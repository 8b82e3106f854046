"""Providers of exact ridge erasures: what each publishes instead of the truth.

Whoever forges the head keeps the true witness and bound, and whoever forges the statistics
keeps digest, head and witness in agreement with them: the lie is always the smallest one.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.soundness.ridge_problem import LARGEST, RidgeProblem, claim, only, without
from workers.arrays import Head, Matrix, Rows
from workers.judge.ridge.claim import ExactClaim
from workers.methods.ridge.base import RidgeState
from workers.methods.ridge.ridge_exact import METHOD

STEPS = 20  # of gradient descent, for whoever tunes the old head further
NOISE = 1e-4  # of the head's root mean square

Provider = Callable[[RidgeProblem], ExactClaim]


def exact_deletion(problem: RidgeProblem) -> ExactClaim:
    """Return the true claim."""
    return claim(problem, problem.after)


def honest_retrain(problem: RidgeProblem) -> ExactClaim:
    """Return the claim of a refit from the retained rows."""
    return claim(problem, _trained(problem, problem.retained))


def no_op(problem: RidgeProblem) -> ExactClaim:
    """Publish the old head and the old statistics."""
    return claim(problem, problem.before)


def wrong_client(problem: RidgeProblem) -> ExactClaim:
    """Forget as many rows of others."""
    left = without(problem.rows, tuple(_others(problem)))
    return claim(problem, _trained(problem, left))


def relabel(problem: RidgeProblem) -> ExactClaim:
    """Keep the rows under other labels."""
    labels, places = problem.rows.labels.copy(), list(problem.erased)
    labels[places] = (labels[places] + 1) % problem.config.classes
    return claim(problem, _trained(problem, Rows(problem.rows.codes, labels)))


def noise(problem: RidgeProblem) -> ExactClaim:
    """Publish true statistics beside the old head with noise."""
    head = problem.before.head
    size = NOISE * float(np.sqrt(np.mean(head.astype(np.float64) ** 2)))
    added = head + problem.rng.normal(scale=size, size=head.shape)
    return claim(problem, _with_head(problem.after, added))


def last_layer(problem: RidgeProblem) -> ExactClaim:
    """Tune the old head by gradient steps on the retained rows."""
    features, targets = _features(problem, problem.retained)
    normal = features.T @ features + problem.config.penalty * np.eye(features.shape[1])
    rate = 1 / float(np.linalg.norm(normal, 2))
    head = problem.before.head.astype(np.float64)
    for _ in range(STEPS):
        head = head - rate * (normal @ head - features.T @ targets)
    return claim(problem, _with_head(problem.after, head))


def overfit(problem: RidgeProblem) -> ExactClaim:
    """Move the old head least so that it answers the erased rows as the true one does."""
    features, _ = _features(problem, only(problem.rows, problem.erased))
    old = problem.before.head.astype(np.float64)
    asked = features @ (problem.after.head.astype(np.float64) - old)
    return claim(problem, _with_head(problem.after, old + np.linalg.pinv(features) @ asked))


def old_version(problem: RidgeProblem) -> ExactClaim:
    """Serve the old head beside the new statistics."""
    return claim(problem, _with_head(problem.after, problem.before.head))


def one_ulp(problem: RidgeProblem) -> ExactClaim:
    """Move one entry of the true head to the next float32."""
    head = problem.after.head.copy()
    place = tuple(int(problem.rng.integers(size)) for size in head.shape)
    towards = np.float32(np.inf if problem.rng.integers(2) else -np.inf)
    head[place] = np.nextafter(head[place], towards)
    return claim(problem, _with_head(problem.after, head))


def forged_statistics(problem: RidgeProblem) -> ExactClaim:
    """Sum one invented row in place of a stored one: rows, digest, head and witness agree."""
    codes, labels = problem.retained.codes.copy(), problem.retained.labels.copy()
    place = int(problem.rng.integers(len(codes)))
    # One code differs by one unit: the least that a sum of other rows can be off.
    column = int(problem.rng.integers(codes.shape[1]))
    codes[place, column] += 1 if codes[place, column] < LARGEST else -1
    return claim(problem, _trained(problem, Rows(codes, labels)))


def dropped_record(problem: RidgeProblem) -> ExactClaim:
    """Lose one retained record more, in rows, statistics, head, roots and counts alike."""
    others = np.setdiff1d(np.arange(len(problem.rows)), problem.erased)
    lost = (int(problem.rng.choice(others)),)
    left = without(problem.rows, (*problem.erased, *lost))
    return claim(problem, _trained(problem, left), stored=left, missing=lost)


def swapped_rows(problem: RidgeProblem) -> ExactClaim:
    """Store the erased rows under the names of others, who are erased in their place."""
    codes, labels = problem.rows.codes.copy(), problem.rows.labels.copy()
    places, others = list(problem.erased), _others(problem)
    codes[others], labels[others] = codes[places], labels[places]
    stored = without(Rows(codes, labels), problem.erased)
    return claim(problem, _trained(problem, stored), stored=stored)


PROVIDERS: dict[str, Provider] = {
    "exact deletion": exact_deletion,
    "honest retrain": honest_retrain,
    "no-op": no_op,
    "wrong client": wrong_client,
    "relabel": relabel,
    "noise": noise,
    "last layer": last_layer,
    "overfit one attack": overfit,
    "old version": old_version,
    "one ulp": one_ulp,
    "forged evidence": forged_statistics,
    "dropped record": dropped_record,
    "swapped rows": swapped_rows,
}


def _others(problem: RidgeProblem) -> list[int]:
    """Return as many places of retained rows as were erased."""
    others = np.setdiff1d(np.arange(len(problem.rows)), problem.erased)
    chosen: list[int] = problem.rng.choice(others, len(problem.erased), replace=False).tolist()
    return chosen


def _trained(problem: RidgeProblem, rows: Rows) -> RidgeState:
    return METHOD.refit(problem.config, [rows]).state


def _with_head(state: RidgeState, head: Head | Matrix) -> RidgeState:
    return replace(state, head=np.asarray(head, dtype=np.float32).copy())


def _features(problem: RidgeProblem, rows: Rows) -> tuple[Matrix, Matrix]:
    steps = np.ldexp(1.0, np.array(problem.config.exponents))
    return rows.codes * steps, np.eye(problem.config.classes)[rows.labels]
