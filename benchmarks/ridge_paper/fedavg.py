"""FedAvg of a linear head with cross-entropy: the ridge paper's retraining baseline.

Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", 2017, algorithm 1. Rounds and clients a round are those of the ridge
paper's appendix A1 (table 6), full local data; it does not say how a client optimises:
here one epoch of SGD, batches of 64. One process plays all clients, so what is timed is
arithmetic alone: no network, no waiting for anybody.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.ridge_paper.task import Task
from workers.arrays import Matrix
from workers.blas_threads import threads_for

Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rounds, clients a round, rows a batch, and the step in units of 1/E‖x‖²."""

    rounds: int = 120
    clients: int = 20
    batch: int = 64
    rate: float = 16.0


def train(
    task: Task,
    owners: NDArray[np.int64],
    schedule: Schedule,
    keep: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Matrix:
    """Return the head (d, c) that FedAvg reaches from zero on the kept rows."""
    rng = np.random.Generator(np.random.PCG64(seed))
    kept = np.ones(len(owners), dtype=np.bool_) if keep is None else keep
    order = np.argsort(owners, kind="stable")
    order = order[kept[order]]
    sizes = np.bincount(owners[order], minlength=int(owners.max()) + 1)
    ends = np.cumsum(sizes)
    features = task.features.astype(np.float32)[order]
    labels = task.rows.labels[order]
    rate = np.float32(schedule.rate / float(np.mean(np.square(task.test).sum(axis=1))))
    head: Weights = np.zeros((task.config.dimension, task.config.classes), np.float32)
    present = np.flatnonzero(sizes)
    for _ in range(schedule.rounds):
        chosen = rng.choice(present, min(schedule.clients, len(present)), replace=False)
        total = np.zeros_like(head)
        for client in chosen:
            part = slice(ends[client] - sizes[client], ends[client])
            with threads_for(2 * schedule.batch * head.size):
                local = _epoch(head, features[part], labels[part], rate, schedule.batch, rng)
            total += np.float32(sizes[client]) * local
        head = total / np.float32(sizes[chosen].sum())
    return head.astype(np.float64)


def _epoch(
    head: Weights,
    features: Weights,
    labels: NDArray[np.int64],
    rate: np.float32,
    batch: int,
    rng: np.random.Generator,
) -> Weights:
    """Return the head after one pass of SGD over one client's rows."""
    local = head.copy()
    order = rng.permutation(len(labels))
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        x, y = features[part], labels[part]
        scores = x @ local
        scores -= scores.max(axis=1, keepdims=True)
        probabilities = np.exp(scores)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        probabilities[np.arange(len(y)), y] -= 1  # the gradient of cross-entropy
        local -= (rate / np.float32(len(y))) * (x.T @ probabilities)
    return local
