"""Statistics of rows and of messages in any mixture: the same integers for the same rows."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from workers.arrays import Rows
from workers.errors import RefusedError
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    add,
    merge,
    subtract,
)
from workers.methods.ridge.statistics.message import (
    Batch,
    Message,
    check_plausible,
    check_rest,
    subtract_statistics,
)


def gather(
    batches: Iterable[Batch], dimension: int, classes: int, *, bits: int
) -> RidgeStatistics:
    """Return the statistics of all batches. Raises as `accumulate` and `add_batch`."""
    nothing = np.zeros((dimension, dimension), dtype=np.int64)
    summed = RidgeStatistics(nothing, np.zeros((dimension, classes), dtype=np.int64), 0)

    def rows() -> Iterator[Rows]:
        nonlocal summed
        for batch in batches:
            if isinstance(batch, Rows):
                yield batch
            else:
                summed = add_batch(summed, batch, bits=bits)

    # Only with a list can a device that failed half way start again.
    source = list(rows()) if isinstance(batches, Sequence) else rows()
    statistics = accumulate(source, dimension, classes, bits=bits)
    return merge(statistics, summed, bits=bits) if summed.rows else statistics


def add_batch(statistics: RidgeStatistics, batch: Batch, *, bits: int) -> RidgeStatistics:
    """Return the statistics with this batch as well.

    Raises ExactnessError for too many rows, RefusedError for another shape, a message that
    no rows can have, or a sketch of one.
    """
    if isinstance(batch, Rows):
        return add(statistics, batch, bits=bits)
    _check(statistics, batch, bits)
    return merge(statistics, batch.statistics, bits=bits)


def subtract_batch(statistics: RidgeStatistics, batch: Batch, *, bits: int) -> RidgeStatistics:
    """Return the statistics as if this batch had never been added.

    Raises InfeasibleRemovalError if no rows could have them, else as `add_batch`. For a
    message that takes O(d³), since what is left must be positive semidefinite: otherwise
    no bound that divides by λ holds.
    """
    if isinstance(batch, Rows):
        return subtract(statistics, batch, bits=bits)
    _check(statistics, batch, bits)
    after = subtract_statistics(statistics, batch.statistics)
    check_rest(after, bits=bits)
    return after


def _check(statistics: RidgeStatistics, message: Message, bits: int) -> None:
    if message.statistics.moment.shape != statistics.moment.shape:
        raise RefusedError("this message belongs to another model: summarise for this one")
    check_plausible(message, bits=bits)
    if message.residual > 0:
        raise RefusedError("a sketch is not exact: use the method ridge-sketched")
