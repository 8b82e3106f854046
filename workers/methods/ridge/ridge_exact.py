"""Variant A: keep G and C exactly, subtract what is forgotten, solve again.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
section 5, Variant A and equations (5) and (6); the integer statistics and the canonical
head make its pointwise equality with retraining an equality of files.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

from workers.methods.ridge.base import (
    Outcome,
    RidgeConfig,
    RidgeState,
    UpdateWork,
    add_batch,
    bind,
    check_shape,
    gather,
    subtract_batch,
)
from workers.methods.ridge.canonical_head import canonical_head
from workers.methods.ridge.ridge_system import check_penalty
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.statistics.message import Batch


@dataclass(frozen=True, slots=True)
class RidgeExact:
    """Exact ridge unlearning: the state is a pure function of the retained multiset."""

    id: str = "ridge-exact"
    version: str = "1"

    def check_penalty(self, config: RidgeConfig, statistics: RidgeStatistics) -> None:
        """Raise PenaltyError if some later removal could leave a head that cannot be proven."""
        check_penalty(statistics, config)

    def learn(self, config: RidgeConfig, state: RidgeState | None, batch: Batch) -> Outcome:
        """Return the state that knows this batch too (`state` None: this batch alone).

        Raises PenaltyError if some later removal could leave a head that cannot be proven,
        ExactnessError if there are too many rows, RefusedError for another shape or a
        message that no rows can have.
        """
        started = perf_counter()
        if state is None:
            statistics = gather([batch], config.dimension, config.classes, bits=config.bits)
        else:
            check_shape(config, state)
            statistics = add_batch(state.statistics, batch, bits=config.bits)
        check_penalty(statistics, config)
        return _outcome(config, statistics, len(batch), started)

    def forget(self, config: RidgeConfig, state: RidgeState, batch: Batch) -> Outcome:
        """Return the state that training without this batch gives, bit for bit.

        O(kd²) for k rows and O(d³) for the head, whatever was retained. The batch must be of
        the very codes that were learned. Raises InfeasibleRemovalError if they cannot have
        been learned, PenaltyError if the new head cannot be proven, RefusedError for another
        shape.
        """
        started = perf_counter()
        check_shape(config, state)
        statistics = subtract_batch(state.statistics, batch, bits=config.bits)
        return _outcome(config, statistics, len(batch), started)

    def refit(self, config: RidgeConfig, blocks: Iterable[Batch]) -> Outcome:
        """Return the state of training from scratch on all of `blocks`, any order."""
        started = perf_counter()
        statistics = gather(blocks, config.dimension, config.classes, bits=config.bits)
        return _outcome(config, statistics, statistics.rows, started)


METHOD = bind("ridge-exact", RidgeExact())


def _outcome(
    config: RidgeConfig, statistics: RidgeStatistics, rows: int, started: float
) -> Outcome:
    solved = canonical_head(statistics, config)
    state = RidgeState(statistics, solved.head, solved.witness, solved.bound)
    d, c, steps = config.dimension, config.classes, len(solved.witness)
    # One symmetric update, one factorisation, and for each term of the witness a solve
    # and an exact residual of about six products.
    flops = rows * d * (d + 1) + d**3 // 3 + steps * (2 + 6 * 2) * d * d * c
    return Outcome(state, "exact", UpdateWork(perf_counter() - started, rows, flops))
