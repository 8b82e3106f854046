"""All clients' scores of one group of rows, with the rows' salted digests."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels, Matrix
from workers.families.network.data.rows import rows_digest
from workers.silos.score_task import ScoreTask
from workers.silos.scores import ClientScores


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of all clients: labels (n,), logits (n, classes) of both models, clients (n,).

    A client is identified by a digest over its rows' salted digests: equal for equal clients,
    and not a name. rows: n salted digests, one for each score.
    """

    labels: Labels
    before: Matrix
    after: Matrix
    clients: NDArray[np.str_]
    rows: Sequence[bytes]

    def joined(self, other: "Part") -> "Part":
        """Return these rows, then others."""
        return Part(
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.before, other.before]),
            np.concatenate([self.after, other.after]),
            np.concatenate([self.clients, other.clients]),
            [*self.rows, *other.rows],
        )


def part_of(clients: Sequence[ClientScores], group: str, task: ScoreTask, classes: int) -> Part:
    """Return all clients' scored rows of a group of SCORED, as in any silo's task."""
    labels: list[Labels] = [np.zeros(0, dtype=np.int64)]
    before, after = [np.zeros((0, classes))], [np.zeros((0, classes))]
    names: list[str] = []
    scored: list[bytes] = []
    for one in clients:
        rows = one.rows_of(group)
        labels.append(one.labels[rows])
        before.append(one.before[rows])
        after.append(one.after[rows])
        names += [rows_digest(one.digests())] * len(labels[-1])
        if len(one.labels):  # otherwise the network is no classifier, and nothing was scored
            scored += one.asked(group, task)
    return Part(
        np.concatenate(labels),
        np.concatenate(before),
        np.concatenate(after),
        np.array(names, dtype=np.str_),
        scored,
    )
