"""How much training FATS and Exact-Fun repeat for one row, and what Exact-Fun's grid does.

Their case (the ridge paper's section 7.2) is that most single deletions need no training. Rows
are those of table 5's stream, each deleted alone from the head of all rows. FATS tells from its
samples which round it would begin with; of Exact-Fun rounds are aggregated again until one
comes out otherwise. Nothing is timed: what a repeated round takes is in `stream`.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.ridge_paper.contenders import Start
from benchmarks.ridge_paper.linear_heads import EXACT_FUN, FATS, STEP, FederatedHeads, accuracy

REQUESTS, QUICK_REQUESTS = 200, 20
SPARSE = 10  # Exact-Fun is asked about every tenth of them: it has to train to know
STEPS = (0.001, STEP, 0.03, 0.1)
SMALL = 20_000  # rows up to which other steps are tried, a training for each


@dataclass(frozen=True, slots=True)
class Skips:
    """Rounds that one method repeats for each of several rows; step: Exact-Fun's grid, or None.

    accuracy: on test rows, of the head before anybody leaves.
    """

    data: str
    method: str
    step: float | None
    rounds: int
    repeated: list[int]
    accuracy: float

    def untouched(self) -> int:
        """Return how many requests needed no training."""
        return sum(not rounds for rounds in self.repeated)

    def share(self) -> float:
        """Return the mean share of the rounds that were repeated."""
        return float(np.mean(self.repeated)) / self.rounds


def measure(start: Start, quick: bool) -> list[Skips]:
    """Return FATS's repetitions, and Exact-Fun's on each grid, on one data set."""
    task, heads = start.task, start.federated
    rows = task.stream(QUICK_REQUESTS if quick else REQUESTS).tolist()
    found = [
        Skips(
            task.name,
            FATS,
            None,
            heads.rounds.fats[0],
            [heads.fats_repeats(_without(row, len(task.rows))) for row in rows],
            accuracy(heads.fats.weights, heads.linear.test),
        )
    ]
    for step in STEPS if len(task.rows) <= SMALL else (STEP,):
        grid = (
            heads
            if step == STEP
            else FederatedHeads(task, start.owners, heads.rounds, step=step)
        )
        found.append(
            Skips(
                task.name,
                EXACT_FUN,
                step,
                heads.rounds.exact_fun[0],
                [
                    grid.exact_fun_repeats(_without(row, len(task.rows)))
                    for row in rows[::SPARSE]
                ],
                accuracy(grid.exact_fun.weights, grid.linear.test),
            )
        )
    return found


def _without(row: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    keep = np.ones(rows, dtype=np.bool_)
    keep[row] = False
    return keep
