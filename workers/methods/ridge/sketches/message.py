"""A sketch in place of the Gram matrix of a message, from the client to the server.

The client sends factor, shift, moment, counts and the residual it measured; both sides expand
the factor to the same integers. The residual is only attested by the client: the server never
sees what was neglected, so the residual stays in every bound for good.
"""

from dataclasses import replace
from math import inf, nextafter

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Codes, IntMatrix
from workers.methods.ridge.sketches.kinds import sketch
from workers.methods.ridge.sketches.sketch import Sketch, expand
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.statistics.message import Message


def compress(
    message: Message,
    rank: int,
    kind: str = "eigen",
    *,
    codes: Codes | None = None,
    seed: int = 0,
) -> tuple[Sketch, Message]:
    """Return the sketch of a message, and the message a server reconstructs from it.

    The residual is relative to the rows, so it includes the residual of `message`. Neither
    result has a factor R, which would reveal the whole Gram matrix. Raises as
    `sketches.kinds.sketch`.
    """
    small = sketch(message.statistics.gram, rank, kind, codes=codes, seed=seed)
    expanded = from_sketch(small, message.statistics.moment, message.counts)
    if message.residual == 0:
        return small, expanded
    both = nextafter(expanded.residual + message.residual, inf)
    return replace(small, residual=both), replace(expanded, residual=both)


def from_sketch(small: Sketch, moment: IntMatrix, counts: NDArray[np.int64]) -> Message:
    """Return the message with the integers that the sketch stands for as its Gram matrix.

    The residual is copied, in codes squared. `check_message` decides whether rows can have
    it. Raises as `expand`.
    """
    gram = expand(small.factor, small.shift)
    statistics = RidgeStatistics(gram, moment, int(counts.sum()))
    return Message(statistics, counts, None, small.residual)
