"""A float64 head with the error it provably has, from the exact residual.

    ‖W - W*‖_F <= ‖(XᵀX + λI)W - XᵀY‖_F / λ

holds for any W, however it was found, so this judges every method alike. The residual is
formed in integers: entries of W are first rounded to multiples of one power of two a row,
RESOLUTION bits below the largest, since digits that far down cost time and prove nothing.
"""

from dataclasses import dataclass

import numpy as np

from workers.arrays import Matrix
from workers.blas_threads import threads_for
from workers.errors import RefusedError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.canonical_head import column_bounds, norm_above
from workers.methods.ridge.exact_residual import ExactResidual
from workers.methods.ridge.statistics.gram import RidgeStatistics

RESOLUTION = 64  # bits: moves W by less than 2^-64 of itself, float64 by 2^-53
LARGEST = 2.0**300  # far outside any head, and its square is a float64


# A verifier may evaluate the residual more coarsely than it is evaluated here, and what it
# proves must not exceed what is claimed. Its own sums are within 2**-20.
ROOM = 1 + 2.0**-16


@dataclass(frozen=True, slots=True, eq=False)
class ProvenHead:
    """head (d, c) float64 with ‖head - W*‖_F <= bound; residual is C - (G + λD²)V."""

    head: Matrix
    bound: float
    residual: ExactResidual

    @property
    def relative(self) -> float:
        """The bound over ‖head‖_F: 0 if exact, inf for a zero head that is not."""
        if self.bound == 0:
            return 0.0
        size = float(np.linalg.norm(self.head))
        return self.bound / size if size > 0 else float("inf")


def prove_head(weights: Matrix, statistics: RidgeStatistics, config: RidgeConfig) -> ProvenHead:
    """Return weights (d, c), rounded as above, with the bound that its residual proves.

    O(d²c) integer arithmetic. The statistics must come from rows, so that no eigenvalue of
    XᵀX + λI is below λ. Raises RefusedError if a weight is not finite or exceeds 2^300.
    """
    if not (np.abs(weights) < LARGEST).all():  # NaN compares false
        raise RefusedError("a weight is not a number in range: rescale the features")
    residual = ExactResidual(statistics.gram, statistics.moment, config)
    whole, low = _integers(weights, residual.base, config)
    # One product is a sixteenth of G with the places of V, of which there are about four.
    with threads_for(config.dimension**2 * config.classes // 2):
        residual.subtract_product(whole, low)
    shift = residual.base * low - np.array(config.exponents)
    head: Matrix = np.ldexp(whole, shift[:, None]) + 0.0  # no negative zeros
    rough, exponent = residual.approximate()
    bounds = column_bounds(rough, exponent, config)
    bounds[residual.zero_columns()] = 0.0
    return ProvenHead(head, norm_above(bounds.tolist()) * ROOM, residual)


def _integers(weights: Matrix, base: int, config: RidgeConfig) -> tuple[Matrix, int]:
    """Return (whole, low): V = D⁻¹W, rounded to whole·2^(base·low)."""
    steps = np.array(config.exponents, dtype=np.int64)
    used = weights.any(axis=1)
    if not used.any():
        return np.zeros_like(weights), 0
    finest = int(np.frexp(np.abs(weights).max())[1]) + int(steps[used].min()) - RESOLUTION
    # Never below what float64 can hold of a weight in the coarsest column.
    low = max(finest // base, -((1074 - int(steps.max())) // base))
    whole = np.rint(np.ldexp(weights, (steps - base * low)[:, None]))
    return np.ascontiguousarray(whole), low
