"""The exact ledger as the benchmarks see it: bytes that are equal, or differ in some bits."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.ridge_paper.task import HeadTask
from workers.arrays import Matrix, Rows
from workers.artifacts import encode_head
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.canonical_head import canonical_head
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    encode_statistics,
    merge,
)

BLOCK = 997  # rows; unlike any block size of the service


@dataclass(frozen=True, slots=True)
class Files:
    """The canonical bytes of the statistics and of the head, as they would be published."""

    statistics: bytes
    head: bytes

    def bits_apart(self, other: "Files") -> int:
        """Return how many bits differ, in both files together."""
        return bits_apart(self.statistics, other.statistics) + bits_apart(self.head, other.head)


def files(state: RidgeState, config: RidgeConfig) -> Files:
    """Return a state's files."""
    statistics = encode_statistics(
        state.statistics, config.exponents, config.bits, config.penalty
    )
    return Files(statistics, encode_head(state.head, config))


def bits_apart(left: bytes, right: bytes) -> int:
    """Return how many bits of two byte strings differ; a missing byte differs in eight."""
    common = min(len(left), len(right))
    a = np.frombuffer(left, np.uint8, common)
    b = np.frombuffer(right, np.uint8, common)
    return int(np.bitwise_count(a ^ b).sum()) + 8 * (len(left) + len(right) - 2 * common)


def retrained(task: HeadTask, keep: NDArray[np.bool_] | None = None) -> RidgeState:
    """Return the state of training from scratch on the kept rows, last rows first."""
    index = np.arange(len(task.rows)) if keep is None else np.flatnonzero(keep)
    rows = task.some(index[::-1])
    blocks = [
        Rows(rows.codes[i : i + BLOCK], rows.labels[i : i + BLOCK])
        for i in range(0, len(rows), BLOCK)
    ]
    return METHOD.refit(task.config, blocks).state


def federated(task: HeadTask, clients: Iterable[NDArray[np.int64]]) -> RidgeState:
    """Return the state of one round in which each client sends its integer statistics."""
    d, c, bits = task.config.dimension, task.config.classes, task.config.bits
    total: RidgeStatistics | None = None
    for index in clients:
        message = accumulate([task.some(index)], d, c, bits=bits)
        total = message if total is None else merge(total, message, bits=bits)
    if total is None:
        raise ValueError("a federation has at least one client")
    return solved(total, task.config)


def solved(statistics: RidgeStatistics, config: RidgeConfig) -> RidgeState:
    """Return the state whose head is the correctly rounded one of these statistics."""
    head = canonical_head(statistics, config)
    return RidgeState(statistics, head.head, head.witness, head.bound)


def head64(state: RidgeState, *, exact: bool = False) -> Matrix:
    """Return a state's head (d, c) as float64, or the solution itself as near as float64 can.

    The head of the exact ledger is the float32 nearest to the solution in each weight; its
    witness sums to the solution to some thirty digits.
    """
    if exact:
        solution: Matrix = state.witness.sum(axis=0)
        return solution
    return np.asarray(state.head, dtype=np.float64)
