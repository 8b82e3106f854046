"""ACU: learning and forgetting from the Knowledge Tracking Matrix and the rows alone.

Source: "ACU: Analytic Continual Unlearning for Efficient and Exact Forgetting with Privacy
Preservation", equations (5) and (6) for forgetting, (45) for learning. K = (XᵀX + λI)⁻¹
starts at I/λ (appendix C) and is never inverted. The exact statistics are kept beside it to
prove each head; the recursion does not read them, unless the proof fails and it is reset.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from scipy.linalg.blas import dsymm

from workers.arrays import Matrix, Rows
from workers.blas_threads import threads_for
from workers.errors import PenaltyError
from workers.methods.base import Outcome, RidgeConfig, RidgeState, check_shape
from workers.methods.tracked_inverse import (
    empty_inverse,
    penalty_exponent,
    product,
    rank_update,
)
from workers.methods.upkeep import DEFAULT, Tracked, Upkeep
from workers.statistics.blocks import float_blocks
from workers.statistics.gram import RidgeStatistics, accumulate, add, subtract

# Rows of one step of the recursion, each of which also moves all of K through memory.
# At d = 768, 8,000 rows took 0.71 s by 128, 0.96 s by 32 and 0.85 s by 384.
STEP_ROWS = 128


@dataclass(frozen=True, slots=True)
class Acu:
    """Analytic continual learning and unlearning, in any alternation, by one recursion."""

    id: str = "acu"
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
            return self._from_nothing(config, statistics, [rows], started)
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
        """Return the state of learning all rows of `blocks` in turn; holds them meanwhile."""
        started = perf_counter()
        held = list(blocks)
        statistics = accumulate(held, config.dimension, config.classes, bits=config.bits)
        return self._from_nothing(config, statistics, held, started)

    def _from_nothing(
        self,
        config: RidgeConfig,
        statistics: RidgeStatistics,
        blocks: list[Rows],
        started: float,
    ) -> Outcome:
        def attempt() -> Tracked:
            nothing = np.zeros((config.dimension, config.classes))
            return recur(config, Tracked(empty_inverse(config), nothing), blocks, +1)

        n = statistics.rows
        flops = _flops(config, n)
        return self.upkeep.settle(config, statistics, attempt, "none", 1, started, n, flops)

    def _update(
        self,
        config: RidgeConfig,
        state: RidgeState,
        statistics: RidgeStatistics,
        rows: Rows,
        sign: int,
        started: float,
    ) -> Outcome:
        def attempt() -> Tracked:
            assert state.inverse is not None
            before = Tracked(state.inverse, np.asarray(state.head, dtype=np.float64))
            return recur(config, before, [rows], sign)

        reset = self.upkeep.planned_reset(state)
        k = len(rows)
        flops = _flops(config, k)
        return self.upkeep.settle(
            config, statistics, attempt, reset, state.updates + 1, started, k, flops
        )


METHOD = Acu()


def recur(config: RidgeConfig, before: Tracked, blocks: list[Rows], sign: int) -> Tracked:
    """Return K and the weights after learning (sign +1) or forgetting (-1) the rows.

    (5), (45): K' = K ± K Xᵀ(I ± X K Xᵀ)⁻¹X K;  (6): W' = (I ± K'XᵀX)W ∓ K'XᵀY, the upper
    signs for forgetting, a few rows at a time. Raises BrokenUpdateError.
    """
    d, c, q = config.dimension, config.classes, penalty_exponent(config)
    shift = np.array(config.exponents) - q
    inverse, scaled = before.inverse, np.ldexp(before.weights, q)
    for codes, labels in float_blocks(blocks, d, c, config.bits, STEP_ROWS):
        with threads_for(2 * len(labels) * d * d):
            features: Matrix = np.ldexp(codes, shift)
            inverse = rank_update(inverse, features, sign).inverse
            error = np.eye(c)[labels] - product(features, scaled)
            spread = dsymm(1.0, inverse.T, features.T)  # K'Xᵀ
            scaled = scaled + sign * product(spread, error)
    return Tracked(inverse, np.ldexp(scaled, -q))


def _flops(config: RidgeConfig, rows: int) -> int:
    d, c = config.dimension, config.classes
    # The statistics; V, the update of K, and K'Xᵀ; the weights.
    return rows * d * (d + 1) + rows * d * (5 * d + 4 * c)
