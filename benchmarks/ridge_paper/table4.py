"""Table 4: how far a federated head is from the central one, for three client counts.

The float ledgers are compared with scikit-learn's Ridge on the pooled rows in float64, by
relative Frobenius distance; the exact ledger with retraining by another order and other
blocks, in bits. The statistics of clients are made and summed in the precision named.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from benchmarks.common import refit
from benchmarks.ridge_paper.exact import federated, files, head64, retrained
from benchmarks.ridge_paper.ledgers import Float, VariantA, VariantB, deviation, pooled
from benchmarks.ridge_paper.partition import members
from benchmarks.ridge_paper.task import HeadTask
from workers.arrays import Matrix

PRECISIONS: dict[str, Float] = {"fp32": np.float32, "fp64": np.float64}


@dataclass(frozen=True, slots=True)
class DeviationRow:
    """Deviations on one data set, each for the client counts in order.

    None where a ledger broke down: its system was not positive definite. exact_bits counts
    the bits in which statistics and head differ from the retrained ones. solver is how far
    scikit-learn's head is from the exact solution, below which nothing can be told.
    """

    data: str
    clients: list[int]
    deviation: dict[str, list[float | None]]
    exact_bits: list[int]
    exact_deviation: list[float]
    solver: float


def measure(task: HeadTask, quick: bool) -> DeviationRow:
    """Return the table's row for one data set."""
    counts = task.client_counts(quick)
    partitions = [members(task.owners(count)) for count in counts]
    central = refit(task.features, task.targets, task.config.penalty)
    deviations = {
        f"{variant}, {precision}": [
            _distance(variant, dtype, task, clients, central) for clients in partitions
        ]
        for variant in ("Variant A", "Variant B")
        for precision, dtype in PRECISIONS.items()
    }
    alone = retrained(task)
    states = [federated(task, clients) for clients in partitions]
    published = files(alone, task.config)
    return DeviationRow(
        data=task.name,
        clients=list(counts),
        deviation=deviations,
        exact_bits=[files(state, task.config).bits_apart(published) for state in states],
        exact_deviation=[deviation(head64(state), head64(alone)) for state in states],
        solver=deviation(
            refit(task.quantised, task.targets, task.config.penalty), head64(alone, exact=True)
        ),
    )


def _distance(
    variant: str,
    dtype: Float,
    task: HeadTask,
    clients: list[NDArray[np.int64]],
    central: Matrix,
) -> float | None:
    d, c, penalty = task.config.dimension, task.config.classes, task.config.penalty
    try:
        if variant == "Variant A":
            a = VariantA(d, c, penalty, dtype)
            for index in clients:
                a.update(task.features[index], task.targets[index], +1)
            return deviation(a.head(), central)
        b = VariantB(d, c, penalty, dtype)
        pooled(b, task.features, task.targets, clients)
        return deviation(b.head(), central)
    except LinAlgError:
        return None
