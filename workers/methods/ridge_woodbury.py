"""Variant B: the tracked inverse is updated by Sherman-Morrison-Woodbury, O(kd²).

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
section 5, Variant B, equations (7) to (10), lemma 1 and "Feasibility and resets". The
statistics are integers and exact; only the head is float64, and its error is proven.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from workers.arrays import Matrix, Rows
from workers.blas_threads import threads_for
from workers.errors import PenaltyError
from workers.methods.base import Outcome, RidgeConfig, RidgeState, check_shape
from workers.methods.batch_factor import factor_batch
from workers.methods.tracked_inverse import penalty_exponent, product, rank_update
from workers.methods.upkeep import DEFAULT, Tracked, Upkeep
from workers.statistics.gram import RidgeStatistics, accumulate, add, subtract

# Rows a column from which Variant A is the cheaper: QR alone takes 2kd² operations, a
# fresh factorisation with its inverse d³.
BATCH_LIMIT = 4


@dataclass(frozen=True, slots=True)
class RidgeWoodbury:
    """Exact statistics, and a float64 head that follows them at O(kd²) an update."""

    id: str = "ridge-woodbury"
    version: str = "1"
    upkeep: Upkeep = DEFAULT

    def learn(self, config: RidgeConfig, state: RidgeState | None, rows: Rows) -> Outcome:
        """Return the state that knows these rows too (`state` None: these rows alone).

        Raises PenaltyError if after some later removal the head could not be proven to the
        tolerance, ExactnessError for too many rows, RefusedError for another shape.
        """
        started = perf_counter()
        if state is None:
            statistics = accumulate([rows], config.dimension, config.classes, bits=config.bits)
            self.upkeep.check_penalty(statistics, config)
            return self._from_nothing(config, statistics, started)
        check_shape(config, state)
        statistics = add(state.statistics, rows, bits=config.bits)
        self.upkeep.check_penalty(statistics, config)
        return self._update(config, state, statistics, rows, +1, started)

    def forget(self, config: RidgeConfig, state: RidgeState, rows: Rows) -> Outcome:
        """Return the state without these rows, its head within the bound of retraining's.

        O(kd²) for k rows, whatever was retained, and O(d²c) for the proof. Raises
        InfeasibleRemovalError if `subtract` does or G + λI would not stay positive definite
        (lemma 1), PenaltyError if the head cannot be proven to the tolerance, RefusedError
        for another shape.
        """
        started = perf_counter()
        check_shape(config, state)
        statistics = subtract(state.statistics, rows, bits=config.bits)
        try:
            return self._update(config, state, statistics, rows, -1, started)
        except PenaltyError as error:
            self.upkeep.refuse_infeasible(state.statistics, config, error)
            raise

    def refit(self, config: RidgeConfig, blocks: Iterable[Rows]) -> Outcome:
        """Return the state of training from scratch on all rows of `blocks`, any order."""
        started = perf_counter()
        statistics = accumulate(blocks, config.dimension, config.classes, bits=config.bits)
        return self._from_nothing(config, statistics, started)

    def _from_nothing(
        self, config: RidgeConfig, statistics: RidgeStatistics, started: float
    ) -> Outcome:
        n, d = statistics.rows, config.dimension
        return self.upkeep.settle(
            config, statistics, _never, "initial", 0, started, n, n * d * (d + 1)
        )

    def _update(
        self,
        config: RidgeConfig,
        state: RidgeState,
        statistics: RidgeStatistics,
        rows: Rows,
        sign: int,
        started: float,
    ) -> Outcome:
        reset = self.upkeep.planned_reset(state)
        if reset == "none" and len(rows) > BATCH_LIMIT * config.dimension:
            reset = "batch"
        k, d, c = len(rows), config.dimension, config.classes
        flops = k * d * (d + 1)
        if reset == "none":
            flops += 3 * k * d * d + 4 * k * d * c

        def attempt() -> Tracked:
            assert state.inverse is not None
            tracked = Tracked(state.inverse, np.asarray(state.head, dtype=np.float64))
            return woodbury(config, tracked, rows, sign)

        return self.upkeep.settle(
            config, statistics, attempt, reset, state.updates + 1, started, k, flops
        )


METHOD = RidgeWoodbury()


def woodbury(config: RidgeConfig, before: Tracked, rows: Rows, sign: int) -> Tracked:
    """Return inverse and weights after adding (sign +1) or deleting (-1) the rows.

    Equation (8), (10): W' = W ± P'(ΔC - ΔG·W) = W ± P'U(Z - UᵀW). Raises BrokenUpdateError.
    """
    if not len(rows):
        return before
    with threads_for(2 * len(rows) * config.dimension**2):
        factor = factor_batch(rows, config)
        update = rank_update(before.inverse, factor.roots, sign)
        scaled = np.ldexp(before.weights, penalty_exponent(config))
        error: Matrix = factor.targets - product(factor.roots, scaled)
        scaled = scaled + sign * product(update.gain, error)
    return Tracked(update.inverse, np.ldexp(scaled, -penalty_exponent(config)))


def _never() -> Tracked:
    raise AssertionError("a reset makes no attempt")
