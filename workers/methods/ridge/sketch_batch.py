"""A batch of rows or a client's message as what a sketched ledger adds or subtracts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ldexp

from workers.arrays import Codes, Rows
from workers.errors import InfeasibleRemovalError, RefusedError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    check_feasible,
    merge,
)
from workers.methods.ridge.statistics.message import (
    Batch,
    Message,
    check_plausible,
    find_fault,
    subtract_statistics,
    sum_above,
)


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """ΔG, ΔC and rows of a batch, the codes if they are known, and what is attested.

    attested: on the client's word, ‖D(ΔG_rows - ΔG)D‖₂ in feature units; 0 for rows.
    """

    statistics: RidgeStatistics
    codes: Codes | None
    attested: float


def delta_of(batch: Batch, config: RidgeConfig) -> Delta:
    """Return the batch's statistics. Raises as `accumulate` or `check_plausible`."""
    if isinstance(batch, Rows):
        summed = accumulate([batch], config.dimension, config.classes, bits=config.bits)
        return Delta(summed, batch.codes, 0.0)
    check_plausible(batch, bits=config.bits)
    if batch.statistics.moment.shape != (config.dimension, config.classes):
        raise RefusedError(
            "this message is of another number of columns or classes: summarise "
            "the rows for this model"
        )
    return Delta(batch.statistics, None, in_features(batch.residual, config))


def deltas_of(batches: Iterable[Batch], config: RidgeConfig) -> Delta:
    """Return the sum of all batches, in one pass. Raises as `delta_of`."""
    messages: list[Message] = []

    def rows_only() -> Iterator[Rows]:
        for batch in batches:
            if isinstance(batch, Rows):
                yield batch
            else:
                messages.append(batch)

    d, c, bits = config.dimension, config.classes, config.bits
    total, attested = accumulate(rows_only(), d, c, bits=bits), 0.0
    for message in messages:
        part = delta_of(message, config)
        total = merge(total, part.statistics, bits=bits)
        attested = sum_above(attested, part.attested)
    return Delta(total, None, attested)


def without(
    ledger: RidgeStatistics, delta: Delta, attested: float, config: RidgeConfig
) -> RidgeStatistics:
    """Return ledger - delta; attested is that of the result.

    Raises InfeasibleRemovalError if no rows that hold these could have the ledger.
    """
    rest = subtract_statistics(ledger, delta.statistics)
    if delta.codes is not None and attested == 0:
        check_feasible(rest, config.bits)
        return rest
    # The smallest step turns the attested bound into the most codes squared.
    residual = ldexp(attested, -2 * min(config.exponents))
    fault = find_fault(rest.gram, rest.moment, rest.rows, bits=config.bits, residual=residual)
    if fault is not None:
        raise InfeasibleRemovalError(
            "the message to forget was not part of this model: forget the statistics of "
            "the very codes that were learned, each once"
        )
    return rest


def in_features(residual: float, config: RidgeConfig) -> float:
    """Return a bound in feature units for one in codes squared: ‖DED‖ <= max 4^e·‖E‖."""
    return ldexp(residual, 2 * max(config.exponents))
