"""ACU: learning and forgetting from the Knowledge Tracking Matrix and the rows alone.

Source: "ACU: Analytic Continual Unlearning for Efficient and Exact Forgetting with Privacy
Preservation", equations (5) and (6) for forgetting, (45) for learning. K = (XᵀX + λI)⁻¹
starts at I/λ (appendix C) and is never inverted. The exact statistics are kept beside it to
prove each head; the recursion does not read them, unless the proof fails and it is reset.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg.blas import dsymm

from workers.arrays import Matrix, Rows
from workers.blas_threads import threads_for
from workers.methods.ridge.base import RidgeConfig, bind
from workers.methods.ridge.statistics.message import Batch
from workers.methods.ridge.statistics.quantiser import float_blocks
from workers.methods.ridge.tracked_inverse import (
    has_roots,
    penalty_exponent,
    product,
    rank_of,
    rank_update,
)
from workers.methods.ridge.tracked_method import TrackedMethod, update_by_message
from workers.methods.ridge.upkeep import Tracked

# Rows of one step of the recursion, each of which also moves all of K through memory.
# At d = 768, 8,000 rows took 0.71 s by 128, 0.96 s by 32 and 0.85 s by 384.
STEP_ROWS = 128


@dataclass(frozen=True, slots=True)
class Acu(TrackedMethod):
    """Analytic continual learning and unlearning, in any alternation, by one recursion."""

    id: str = "acu"
    version: str = "1"
    from_nothing: ClassVar[bool] = True

    def follow(
        self, config: RidgeConfig, before: Tracked, batches: Sequence[Batch], sign: int
    ) -> Tracked:
        """Return `recur`."""
        return recur(config, before, batches, sign)

    def worthwhile(self, config: RidgeConfig, batch: Batch) -> bool:
        """Whether there are rows, or roots of a message, to recur on."""
        return has_roots(batch)

    def flops(self, config: RidgeConfig, batch: Batch) -> int:
        """Return the operations of V, the update of K, K'Xᵀ and the weights."""
        d, c = config.dimension, config.classes
        return rank_of(batch) * d * (5 * d + 4 * c)


METHOD = bind("acu", Acu())


def recur(config: RidgeConfig, before: Tracked, batches: Sequence[Batch], sign: int) -> Tracked:
    """Return K and the weights after learning (sign +1) or forgetting (-1) the batches.

    (5), (45): K' = K ± K Xᵀ(I ± X K Xᵀ)⁻¹X K;  (6): W' = (I ± K'XᵀX)W ∓ K'XᵀY, the upper
    signs for forgetting, a few rows at a time. Raises BrokenUpdateError.
    """
    before = _recur_rows(config, before, [b for b in batches if isinstance(b, Rows)], sign)
    for batch in batches:
        if not isinstance(batch, Rows):
            before = update_by_message(config, before, batch, sign, STEP_ROWS)
    return before


def _recur_rows(
    config: RidgeConfig, before: Tracked, blocks: Sequence[Rows], sign: int
) -> Tracked:
    d, c, q = config.dimension, config.classes, penalty_exponent(config)
    shift = np.array(config.exponents) - q
    inverse, scaled = before.inverse, np.ldexp(before.weights, q)
    for codes, labels in float_blocks(blocks, d, c, config.bits, STEP_ROWS):
        with threads_for(2 * len(labels) * d * d):
            features: Matrix = np.ldexp(codes, shift)
            mine = inverse is not before.inverse  # the result of an earlier step
            inverse = rank_update(inverse, features, sign, in_place=mine).inverse
            error = np.eye(c)[labels] - product(features, scaled)
            spread = dsymm(1.0, inverse.T, features.T)  # K'Xᵀ
            scaled = scaled + sign * product(spread, error)
    return Tracked(inverse, np.ldexp(scaled, -q))
