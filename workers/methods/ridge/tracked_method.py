"""What Variant B and ACU have in common: all but the recursion.

Both keep exact statistics, a tracked inverse and a float64 head. Rows and messages that
stand for rows serve alike: the statistics take the integers of either, the inverse the rows
or the roots of the message, which may be wrong without harm, since the head is proven
against the statistics (`upkeep`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

import numpy as np
from scipy.linalg.blas import dsymm

from workers.blas_threads import threads_for
from workers.errors import PenaltyError
from workers.methods.ridge.base import (
    Outcome,
    RidgeConfig,
    RidgeState,
    add_batch,
    check_shape,
    gather,
    subtract_batch,
)
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.statistics.message import Batch, Message
from workers.methods.ridge.tracked_inverse import (
    empty_inverse,
    message_moment,
    message_roots,
    penalty_exponent,
    product,
    rank_of,
    rank_update,
)
from workers.methods.ridge.upkeep import DEFAULT, Tracked, Upkeep


@dataclass(frozen=True, slots=True)
class TrackedMethod(ABC):
    """A method whose head follows its statistics by a recursion, at O(kd²) an update."""

    id: str
    version: str
    upkeep: Upkeep = DEFAULT
    # Whether the first state is computed by the recursion too, from nothing, or by Variant A.
    from_nothing: ClassVar[bool] = False

    @abstractmethod
    def follow(
        self, config: RidgeConfig, before: Tracked, batches: Sequence[Batch], sign: int
    ) -> Tracked:
        """Return inverse and weights after adding (+1) or deleting (-1) checked batches.

        Raises BrokenUpdateError.
        """

    @abstractmethod
    def worthwhile(self, config: RidgeConfig, batch: Batch) -> bool:
        """Whether following a batch costs less than a reset."""

    @abstractmethod
    def flops(self, config: RidgeConfig, batch: Batch) -> int:
        """Return the floating-point operations of following a batch."""

    def check_penalty(self, config: RidgeConfig, statistics: RidgeStatistics) -> None:
        """Raise PenaltyError as `Upkeep.check_penalty`."""
        self.upkeep.check_penalty(statistics, config)

    def learn(self, config: RidgeConfig, state: RidgeState | None, batch: Batch) -> Outcome:
        """Return the state that knows this batch too (`state` None: this batch alone).

        Raises PenaltyError if after some later removal the head could not be proven to the
        tolerance, ExactnessError for too many rows, RefusedError for another shape or a
        message that no rows can have.
        """
        started = perf_counter()
        if state is None:
            statistics = gather([batch], config.dimension, config.classes, bits=config.bits)
            self.upkeep.check_penalty(statistics, config)
            return self._start(config, statistics, [batch], started)
        check_shape(config, state)
        statistics = add_batch(state.statistics, batch, bits=config.bits)
        self.upkeep.check_penalty(statistics, config)
        return self._update(config, state, statistics, batch, +1, started)

    def forget(self, config: RidgeConfig, state: RidgeState, batch: Batch) -> Outcome:
        """Return the state without this batch, its head within the bound of retraining's.

        O(kd²) for k rows, whatever was retained, and O(d²c) for the proof. Raises
        InfeasibleRemovalError if `subtract_batch` does or G + λI would not stay positive
        definite (lemma 1), PenaltyError if the head cannot be proven to the tolerance,
        RefusedError for another shape.
        """
        started = perf_counter()
        check_shape(config, state)
        statistics = subtract_batch(state.statistics, batch, bits=config.bits)
        try:
            return self._update(config, state, statistics, batch, -1, started)
        except PenaltyError as error:
            self.upkeep.refuse_infeasible(state.statistics, config, error)
            raise

    def refit(self, config: RidgeConfig, blocks: Iterable[Batch]) -> Outcome:
        """Return the state of training from scratch on all of `blocks`, in any order.

        Keeps them in memory if the first state is computed by the recursion.
        """
        started = perf_counter()
        held = list(blocks) if self.from_nothing else []
        source = held if self.from_nothing else blocks
        statistics = gather(source, config.dimension, config.classes, bits=config.bits)
        return self._start(config, statistics, held, started)

    def _start(
        self,
        config: RidgeConfig,
        statistics: RidgeStatistics,
        batches: Sequence[Batch],
        started: float,
    ) -> Outcome:
        n, d = statistics.rows, config.dimension

        def tries() -> Tracked:
            nothing = Tracked(empty_inverse(config), np.zeros((d, config.classes)))
            return self.follow(config, nothing, batches, +1)

        reset, flops = "initial", n * d * (d + 1)
        if self.from_nothing:
            worthwhile = all(self.worthwhile(config, batch) for batch in batches)
            reset = "none" if worthwhile else "batch"
            flops += sum(self.flops(config, batch) for batch in batches) if worthwhile else 0
        return self.upkeep.settle(config, statistics, tries, reset, 1, started, n, flops)

    def _update(
        self,
        config: RidgeConfig,
        state: RidgeState,
        statistics: RidgeStatistics,
        batch: Batch,
        sign: int,
        started: float,
    ) -> Outcome:
        def tries() -> Tracked:
            assert state.inverse is not None
            before = Tracked(state.inverse, np.asarray(state.head, dtype=np.float64))
            return self.follow(config, before, [batch], sign)

        reset = self.upkeep.planned_reset(state)
        if reset == "none" and not self.worthwhile(config, batch):
            reset = "batch"
        k, d = rank_of(batch), config.dimension
        flops = k * d * (d + 1)
        if reset == "none":
            flops += self.flops(config, batch)
        return self.upkeep.settle(
            config, statistics, tries, reset, state.updates + 1, started, len(batch), flops
        )


def update_by_message(
    config: RidgeConfig, before: Tracked, message: Message, sign: int, step: int
) -> Tracked:
    """Return inverse and weights after adding (+1) or deleting (-1) a checked message.

    `step` roots at a time. Equations (7) to (10), and (5), (6) of ACU, with ΔC as it came:
    W' = W ± P'(ΔC - ΔG·W), where ΔG = UUᵀ. Raises BrokenUpdateError.
    """
    q = penalty_exponent(config)
    roots, inverse = message_roots(message, config), before.inverse
    scaled = np.ldexp(before.weights, q)
    with threads_for(2 * min(len(roots), step) * config.dimension**2):
        for start in range(0, len(roots), step):
            mine = inverse is not before.inverse  # the result of an earlier step
            part = roots[start : start + step]
            inverse = rank_update(inverse, part, sign, in_place=mine).inverse
        error = message_moment(message, config)
        if len(roots):
            error = error - product(roots.T, product(roots, scaled))
        scaled = scaled + sign * dsymm(1.0, inverse.T, error)
    return Tracked(inverse, np.ldexp(scaled, -q))
