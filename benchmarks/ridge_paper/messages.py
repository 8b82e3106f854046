"""Bytes of one message: table 1 of the ridge paper, and the sketches of its appendix A2.

Sizes are those of the arrays that a client would send for a chunk of its rows: Variant A the
symmetric Gram matrix and the moment, Variant B the thin factor and the moment, `ridge-exact`
the integer Gram triangle, moment and label counts, or the quantised rows themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks import ridge_sketches
from benchmarks.ridge_paper.ledgers import factor_message
from benchmarks.ridge_paper.task import HeadTask
from workers.arrays import Rows
from workers.methods.ridge.sketches.kinds import known
from workers.methods.ridge.statistics.gram import accumulate
from workers.methods.ridge.statistics.message import subtract_statistics
from workers.methods.ridge.upkeep import restart

CHUNKS = (1, 10, 100, 1_000)  # rows
BATCH = 100  # rows that the sketched message deletes
RANKS = (8, 32, 128)


@dataclass(slots=True)
class Sketch:
    """One sketch of a deleted batch; distances are relative to the refitted head's norm.

    share: of the bytes of the exact triangle. deviation and what follows are None where the
    sketched matrix is not definite: the service would refit.
    """

    kind: str
    rank: int
    share: float
    deviation: float | None = None
    proven: float | None = None
    resolvent: float | None = None
    accuracy: float | None = None


@dataclass(slots=True)
class Messages:
    """One data set. bytes: by rows of the chunk, then by what is sent."""

    data: str
    dimension: int
    classes: int
    bytes: dict[str, dict[str, int]]
    sketches: list[Sketch]


def measure(task: HeadTask) -> Messages:
    """Return what messages about rows of a task take, and what sketches of them cost."""
    config = task.config
    return Messages(
        task.name, config.dimension, config.classes, _sizes(task), list(_sketches(task))
    )


def _sizes(task: HeadTask) -> dict[str, dict[str, int]]:
    d, c = task.config.dimension, task.config.classes
    found: dict[str, dict[str, int]] = {}
    for count in CHUNKS:
        index = task.stream(count, seed=3)
        x, y = task.features[index], task.targets[index]
        factor, rows = factor_message(x, y), task.some(index)
        exact = accumulate([rows], d, c)
        triangle = exact.gram[np.triu_indices(d)].nbytes
        found[str(len(index))] = {
            "Variant A": (x.T @ x).nbytes + factor.moment.nbytes,
            "Variant B": factor.root.nbytes + factor.moment.nbytes,
            "exact statistics": triangle + exact.moment.nbytes + 8 * c,
            "quantised rows": rows.codes.nbytes + rows.labels.nbytes,
        }
    return found


def _sketches(task: HeadTask) -> Iterator[Sketch]:
    deletion = _deletion(task)
    triangle = 8 * task.config.dimension * (task.config.dimension + 1) // 2
    for kind in known():
        for rank in RANKS:
            if rank > task.config.dimension:
                continue
            line = ridge_sketches.measure(deletion, kind, rank)
            sketch = Sketch(kind, rank, line.size / triangle)
            if np.isfinite(line.proven):
                sketch.deviation, sketch.proven = line.deviation, line.proven
                sketch.resolvent, sketch.accuracy = line.resolvent, line.accuracy
            yield sketch


def _deletion(task: HeadTask) -> ridge_sketches.Deletion:
    d, c = task.config.dimension, task.config.classes
    batch = task.some(task.stream(BATCH, seed=3))
    before, change = accumulate([task.rows], d, c), accumulate([batch], d, c)
    after = subtract_statistics(before, change)
    steps = np.ldexp(1.0, np.array(task.config.exponents))
    codes = np.rint(task.test / steps).astype(task.rows.codes.dtype)
    head = restart(after, task.config)[1].head
    tests = Rows(codes, task.test_labels)
    return ridge_sketches.Deletion(task.config, batch, before, change, after, head, tests)
