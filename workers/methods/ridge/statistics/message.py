"""What a client sends in place of its rows: their statistics, and how many of each label.

A message is exact, so that learning and forgetting it is adding and subtracting integers,
with the same bits as if the server had held the rows. It proves nothing: a server can only
refuse statistics that no rows can have.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, nextafter

import numpy as np
from numpy.typing import NDArray

from workers.arrays import IntMatrix, Matrix, Rows
from workers.errors import ExactnessError, InfeasibleRemovalError, RefusedError
from workers.methods.ridge.statistics.factor import (
    check_factor,
    check_form,
    check_own_factor,
    gram_of,
    is_factor,
    triangle,
)
from workers.methods.ridge.statistics.gram import RidgeStatistics, accumulate, check_bounds
from workers.methods.ridge.statistics.plausible import find_fault
from workers.methods.ridge.statistics.quantiser import largest_code


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """The statistics of a batch, in code units. The arrays are read-only.

    counts (c,) int64: rows of each label. factor (k, d) float64, upper trapezoidal, or None:
    R with RᵀR = G up to less than 1/2 in every entry, a speed-up that no result relies on.
    residual >= 0: ‖G_rows - G‖₂ in squared code units at most, attested by the client; 0
    except for sketches.
    """

    statistics: RidgeStatistics
    counts: NDArray[np.int64]
    factor: Matrix | None = None
    residual: float = 0.0

    def __post_init__(self) -> None:
        self.counts.setflags(write=False)
        if self.factor is not None:
            self.factor.setflags(write=False)

    def __len__(self) -> int:
        return self.statistics.rows


Batch = Rows | Message


class ImplausibleMessageError(RefusedError):
    """A message that no rows can have. The error names the broken condition, but no number."""


def summarise(rows: Rows, dimension: int, classes: int, *, bits: int) -> Message:
    """Return the exact message of some rows. Raises as `accumulate`."""
    statistics = accumulate([rows], dimension, classes, bits=bits)
    return Message(statistics, np.bincount(rows.labels, minlength=classes).astype(np.int64))


def with_factor(message: Message, rows: Rows) -> Message:
    """Return the message of these rows with the triangle of their thin QR factorisation.

    Every evaluation of the triangle gives back G: this is checked before it is sent. Raises
    ExactnessError, with the remedy, if float64 cannot hold it; RefusedError for other rows.
    """
    factor = triangle([rows.codes.astype(np.float64)], message.statistics.dimension)
    check_form(factor, message.statistics.dimension, message.statistics.rows)
    check_own_factor(factor, message.statistics.gram)
    return replace(message, factor=factor)


def from_factor(
    factor: Matrix, moment: IntMatrix, counts: NDArray[np.int64], *, bits: int
) -> Message:
    """Return the message whose Gram matrix is the integers nearest to RᵀR, for R = factor.

    Raises RefusedError for a factor of another form or of no integers, ExactnessError for one
    too large. `check_message` checks the other conditions.
    """
    rows = int(counts.sum())
    check_bounds(max(rows, 0), bits)
    check_form(factor, len(moment), rows)
    statistics = RidgeStatistics(gram_of(factor), moment, rows)
    return Message(statistics, counts, factor)


def check_message(message: Message, *, bits: int) -> None:
    """Raise RefusedError unless rows might exist that have this message.

    ExactnessError if there are too many of them, ImplausibleMessageError for the conditions
    of `find_fault`, RefusedError for another shape or a factor that is not of this G.
    """
    check_plausible(message, bits=bits)
    if message.factor is not None:
        check_form(message.factor, message.statistics.dimension, message.statistics.rows)
        if message.residual == 0:
            check_factor(message.factor, message.statistics.gram)


def check_plausible(message: Message, *, bits: int) -> None:
    """Raise as `check_message`, without checking the factor."""
    _check_arrays(message)
    statistics, counts = message.statistics, message.counts
    check_bounds(statistics.rows, bits)
    if counts.min() < 0 or sum(counts.tolist()) != statistics.rows:
        raise ImplausibleMessageError(
            "the label counts do not sum to the number of rows: count each row once"
        )
    limit = statistics.dimension * statistics.rows * largest_code(bits) ** 2
    if not 0 <= message.residual <= limit:
        raise ImplausibleMessageError(
            "the residual of a sketch is negative, no number, or more than all rows can have"
        )
    fault = find_fault(
        statistics.gram,
        statistics.moment,
        statistics.rows,
        counts,
        bits=bits,
        residual=message.residual,
    )
    if fault is not None:
        raise ImplausibleMessageError(f"{fault}: summarise the rows again, with these steps")


def add_messages(messages: Iterable[Message], *, bits: int) -> Message:
    """Return the message of the rows of all messages, at least one, each of them checked.

    Exact. Their factors, if all have one, become one triangle, unless float64 cannot hold
    it. Raises ExactnessError for too many rows, RefusedError for different shapes.
    """
    parts = list(messages)
    first = parts[0].statistics
    rows = sum(part.statistics.rows for part in parts)
    check_bounds(rows, bits)
    gram, moment = np.zeros_like(first.gram), np.zeros_like(first.moment)
    counts, residual = np.zeros_like(parts[0].counts), 0.0
    for part in parts:
        _check_alike(first, part.statistics)
        gram += part.statistics.gram
        moment += part.statistics.moment
        counts += part.counts
        residual = _upwards(residual, part.residual)
    factor = stack_factors(parts)
    if factor is not None and not is_factor(factor, gram):
        factor = None
    return Message(RidgeStatistics(gram, moment, rows), counts, factor, residual)


def stack_factors(messages: Iterable[Message]) -> Matrix | None:
    """Return the triangle (min(k, d), d) of all factors, or None unless each has a usable one.

    Stacking is adding Gram matrices; a factorisation of the stack keeps it at most square.
    """
    factors, dimension = [], 0
    for message in messages:
        dimension = message.statistics.dimension
        factor = message.factor
        if factor is None or factor.ndim != 2 or factor.shape[1] != dimension:
            return None
        if not np.isfinite(factor).all():
            return None
        factors.append(factor)
    return triangle(factors, dimension)


def subtract_message(whole: Message, part: Message, *, bits: int) -> Message:
    """Return the message of the rows of `whole` that are not of `part`, without a factor.

    Raises InfeasibleRemovalError if no rows can have what is left, RefusedError for different
    shapes. The rest of sketches is known to within the sum of both residuals.
    """
    statistics = subtract_statistics(whole.statistics, part.statistics)
    residual = _upwards(whole.residual, part.residual)
    rest = Message(statistics, whole.counts - part.counts, None, residual)
    try:
        check_plausible(rest, bits=bits)
    except ExactnessError:
        raise
    except RefusedError as reason:
        raise _infeasible() from reason
    return rest


def subtract_statistics(whole: RidgeStatistics, part: RidgeStatistics) -> RidgeStatistics:
    """Return whole - part, exactly and without checking that rows can have it.

    Raises InfeasibleRemovalError for more rows than there are, RefusedError for different
    shapes.
    """
    _check_alike(whole, part)
    if part.rows > whole.rows:
        raise InfeasibleRemovalError(
            f"{part.rows} rows to forget, {whole.rows} learned: check the scope"
        )
    # A difference that wraps is at least 2^64 - n·q², and above the most that may be left.
    return RidgeStatistics(
        whole.gram - part.gram, whole.moment - part.moment, whole.rows - part.rows
    )


def check_rest(statistics: RidgeStatistics, *, bits: int) -> None:
    """Raise InfeasibleRemovalError unless rows of any labels might have these statistics."""
    gram, moment, rows = statistics.gram, statistics.moment, statistics.rows
    fault = find_fault(gram, moment, rows, bits=bits)
    if fault is not None:
        raise _infeasible()


def _check_arrays(message: Message) -> None:
    statistics, counts = message.statistics, message.counts
    gram, moment, rows = statistics.gram, statistics.moment, statistics.rows
    integers = all(array.dtype == np.int64 for array in (gram, moment, counts))
    if not (integers and isinstance(rows, int) and not isinstance(rows, bool)):
        raise RefusedError("a message holds int64 arrays and a number of rows")
    if moment.ndim != 2 or 0 in moment.shape:
        raise RefusedError("the moment of a message must have a row for each column of G")
    d, c = moment.shape
    if gram.shape != (d, d) or counts.shape != (c,) or rows < 0:
        raise RefusedError("the arrays of a message do not fit each other: check the shapes")


def _check_alike(one: RidgeStatistics, two: RidgeStatistics) -> None:
    if one.moment.shape != two.moment.shape:
        raise RefusedError("statistics of different shapes belong to different models")


def _upwards(one: float, two: float) -> float:
    """Return one + two, rounded up unless a side is 0."""
    return nextafter(one + two, inf) if one and two else one + two


def _infeasible() -> InfeasibleRemovalError:
    return InfeasibleRemovalError(
        "the message to forget was not part of this model: "
        "forget the statistics of the very codes that were learned, each once"
    )
