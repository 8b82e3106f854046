"""Variant B: the tracked inverse is updated by Sherman-Morrison-Woodbury, O(kd²).

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
section 5, Variant B, equations (7) to (10), lemma 1 and "Feasibility and resets". The
statistics are integers and exact; only the head is float64, and its error is proven.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workers.arrays import Matrix, Rows
from workers.blas_threads import threads_for
from workers.methods.ridge.base import RidgeConfig, bind
from workers.methods.ridge.statistics.message import Batch
from workers.methods.ridge.tracked_inverse import (
    factor_batch,
    has_roots,
    penalty_exponent,
    product,
    rank_of,
    rank_update,
)
from workers.methods.ridge.tracked_method import TrackedMethod, update_by_message
from workers.methods.ridge.upkeep import Tracked

# Rows per column from which Variant A is cheaper: the update takes about 5kd² operations with
# its QR, a fresh factorisation with its inverse d³, and most of those are products. At d =
# 768 the two take equally long for about 300 rows.
BATCH_LIMIT = 0.5


@dataclass(frozen=True, slots=True)
class RidgeWoodbury(TrackedMethod):
    """Exact statistics, and a float64 head that follows them at O(kd²) an update."""

    id: str = "ridge-woodbury"
    version: str = "2"

    def follow(
        self, config: RidgeConfig, before: Tracked, batches: Sequence[Batch], sign: int
    ) -> Tracked:
        """Return `woodbury` of one batch after the other."""
        for batch in batches:
            before = woodbury(config, before, batch, sign)
        return before

    def worthwhile(self, config: RidgeConfig, batch: Batch) -> bool:
        """Whether a batch has few enough rows, or brings a factor."""
        return has_roots(batch) and rank_of(batch) <= BATCH_LIMIT * config.dimension

    def flops(self, config: RidgeConfig, batch: Batch) -> int:
        """Return the operations of the rank update and of the weights."""
        k, d, c = rank_of(batch), config.dimension, config.classes
        return 3 * k * d * d + 4 * k * d * c


METHOD = bind("ridge-woodbury", RidgeWoodbury())


def woodbury(config: RidgeConfig, before: Tracked, batch: Batch, sign: int) -> Tracked:
    """Return inverse and weights after adding (sign +1) or deleting (-1) a checked batch.

    Equation (8), (10): W' = W ± P'(ΔC - ΔG·W) = W ± P'U(Z - UᵀW). Raises BrokenUpdateError.
    """
    if not len(batch):
        return before
    if not isinstance(batch, Rows):
        return update_by_message(config, before, batch, sign, step=config.dimension)
    with threads_for(2 * len(batch) * config.dimension**2):
        factor = factor_batch(batch, config)
        update = rank_update(before.inverse, factor.roots, sign)
        scaled = np.ldexp(before.weights, penalty_exponent(config))
        error: Matrix = factor.targets - product(factor.roots, scaled)
        scaled = scaled + sign * product(update.gain, error)
    return Tracked(update.inverse, np.ldexp(scaled, -penalty_exponent(config)))
