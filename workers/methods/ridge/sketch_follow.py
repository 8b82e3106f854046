"""Variant B's update with a sketch in place of the batch: O(rd² + d²c) for rank r.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
section 5, equations (7) to (10), with appendix A2.1's factor of ΔG for U.
"""

import numpy as np

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.sketches.sketch import Sketch
from workers.methods.ridge.tracked_inverse import penalty_exponent, product, rank_update
from workers.methods.ridge.upkeep import Tracked


def follow(
    config: RidgeConfig, before: Tracked, small: Sketch, moment: IntMatrix, sign: int
) -> Tracked:
    """Return inverse and weights after adding (+1) or deleting (-1) ΔĜ = UUᵀ and ΔC.

    Equations (8) and (10): W' = W ± P'(ΔC - ΔĜ·W), O(rd² + d²c). Raises BrokenUpdateError.
    """
    scale, steps = penalty_exponent(config), np.array(config.exponents)
    roots: Matrix = np.ldexp(small.factor.astype(np.float64), steps - small.shift - scale)
    change: Matrix = np.ldexp(moment.astype(np.float64), (steps - scale)[:, None])
    weights = np.ldexp(before.weights, scale)
    with threads_for(2 * max(1, small.rank) * config.dimension**2):
        if not small.rank:
            step, inverse = product(before.inverse, change), before.inverse
        else:
            update = rank_update(before.inverse, roots, sign)
            step, inverse = product(update.inverse, change), update.inverse
            step = step - product(update.gain, product(roots, weights))
    return Tracked(inverse, np.ldexp(weights + sign * step, -scale))
