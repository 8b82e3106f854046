"""The correctly rounded ridge head: one float32 file for one set of rows, anywhere.

Iterative refinement with an exact residual (Wilkinson): factorise once in float64, then
V += solve(C - (G + λD²)V) until the a posteriori bound

    ‖W - W*‖ <= ‖(XᵀX + λI)W - XᵀY‖ / λ     (λ <= λ_min(XᵀX + λI), always)

is below the distance of every weight to a float32 rounding boundary. Nothing here trusts
the solver: a wrong factor only means that the bound does not shrink, and a refusal.
"""

from dataclasses import dataclass
from math import frexp, inf, log2, sqrt

import numpy as np

from workers.arrays import Head, IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import PenaltyError, RefusedError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.exact_residual import ExactResidual
from workers.methods.ridge.ridge_system import RidgeSystem, factorise, sufficient_penalty
from workers.methods.ridge.rounding import round_weights
from workers.methods.ridge.statistics.gram import RidgeStatistics

# Covers every float64 rounding in `column_bounds`: (d + 60)·2^-48 below d = 2^17.
SLACK = 1 + 2.0**-30
KEEP_BITS = 44  # a float64 solve gains fewer: finer digits would be noise
WITNESS = 2.0**-64  # proven distance relative to the largest weight
MIN_GAIN = 3.0  # bits a step; at well-posed sizes a step gains 30 to 50
MAX_TERMS = 64


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalHead:
    """head (d, c) float32; witness (k, d, c) float64; ‖Σ witness - W*‖_F <= bound."""

    head: Head
    witness: Matrix
    bound: float


def canonical_head(statistics: RidgeStatistics, config: RidgeConfig) -> CanonicalHead:
    """Return the head that is a pure function of the statistics and the configuration.

    Correctly rounded as workers/methods/ridge/rounding.py defines it. Works a block of classes
    at a time; the peak allocation is the witness plus about 1.2 times the size of G.
    Raises PenaltyError if refinement does not contract, RefusedError if a weight
    overflows float32.
    """
    with threads_for(config.dimension**3 // 3):
        return _canonical_head(statistics, config)


def _canonical_head(statistics: RidgeStatistics, config: RidgeConfig) -> CanonicalHead:
    d, c = statistics.moment.shape
    system = factorise(statistics, config) if statistics.moment.any() else None
    head = np.zeros((d, c), dtype=np.float32)
    terms: list[Matrix] = [np.zeros((d, c))]
    bound = 0.0
    width = max(16, d // 32)
    for start in range(0, c, width):
        block = slice(start, start + width)
        solved, head[:, block], bounds = _solve_block(
            statistics.gram, statistics.moment[:, block], config, system
        )
        while len(terms) < len(solved):
            terms.append(np.zeros((d, c)))
        for whole, part in zip(terms, solved, strict=False):
            whole[:, block] = part
        bound = norm_above([bound, *bounds])
    del system  # before the witness is copied: it is half the size of G
    return CanonicalHead(head, np.stack(terms), bound)


def _solve_block(
    gram: IntMatrix, moment: IntMatrix, config: RidgeConfig, system: RidgeSystem | None
) -> tuple[list[Matrix], Head, Matrix]:
    """Return (terms, head, bounds) for some columns of C."""
    residual = ExactResidual(gram, moment, config)
    # A silent column has a zero row in C too: its weights are exactly zero.
    silent = np.broadcast_to((gram.diagonal() == 0)[:, None], moment.shape)
    terms = [np.zeros(moment.shape)]
    size = inf
    while len(terms) <= MAX_TERMS:
        rough, exponent = residual.approximate()
        bounds = column_bounds(rough, exponent, config)
        bounds[residual.zero_columns()] = 0.0
        head = round_weights(terms, bounds, silent)
        if head is not None and _close_enough(bounds, head):
            return terms[1:], head, bounds
        if system is None:
            raise AssertionError("a zero moment has a zero head")
        rough = np.ldexp(rough, system.scales[:, None])
        last, size = size, log2(float(np.abs(rough).max())) + exponent
        if size > last - MIN_GAIN:
            break
        terms.append(_step(residual, system, rough, exponent, config))
    raise PenaltyError(
        "refinement does not contract: this penalty is too small beside the Gram matrix; "
        f"use a penalty of at least {sufficient_penalty(gram, config):.3g}"
    )


def _close_enough(bounds: Matrix, head: Head) -> bool:
    largest = float(np.abs(head).max())
    return largest == 0 or float(bounds.max()) <= WITNESS * largest


def column_bounds(residual: Matrix, exponent: int, config: RidgeConfig) -> Matrix:
    """Return b (m,) with ‖w_k - w*_k‖_2 <= b_k, for R = residual·2^exponent (d, m).

    Rounded up throughout; inf where no finite float64 bounds it.
    """
    scaled = np.ldexp(residual, np.array(config.exponents)[:, None])
    peak = np.abs(scaled).max(axis=0, initial=0.0)
    peak[peak == 0] = 2.0**-900  # what `approximate` may have lost
    norm = peak * np.sqrt(np.square(scaled / peak).sum(axis=0)) * SLACK
    mantissa, penalty_exponent = frexp(config.penalty)
    norm = (norm + 2.0**-700) / mantissa
    with np.errstate(over="ignore"):
        bounds: Matrix = np.ldexp(norm, exponent - penalty_exponent) * SLACK
    return np.nextafter(bounds, inf)


def norm_above(values: list[float]) -> float:
    """Return a number no less than the Euclidean norm of `values` (>= 0)."""
    peak = max(values)
    if peak == 0:
        return 0.0
    norm = sqrt(sum((float(value) / peak) ** 2 for value in values))
    return float(np.nextafter(peak * norm * SLACK, inf))


def _step(
    residual: ExactResidual,
    system: RidgeSystem,
    scaled: Matrix,
    exponent: int,
    config: RidgeConfig,
) -> Matrix:
    """Solve for one correction, take it off the residual, return it as weights (d, m)."""
    solution = system.solve(scaled)  # V = S·solution·2^exponent
    rows = np.frexp(np.abs(solution).max(axis=1))[1].astype(np.int64)
    used = np.abs(solution).max(axis=1) > 0
    scales = system.scales
    steps = np.array(config.exponents)
    if (exponent + (rows + scales - steps)[used]).max(initial=-2000) > 300:
        raise RefusedError("a weight exceeds float32: rescale the features")
    # One grid for the block: KEEP_BITS below the largest entry of the scaled solution,
    # at the finest scale in use, but never below what float64 can hold of a weight.
    finest = exponent + int(rows.max()) + int(scales[used].min()) - KEEP_BITS
    low = max(finest // residual.base, -((1074 - int(steps.max())) // residual.base))
    grid = residual.base * low
    whole = np.rint(np.ldexp(solution, (scales + exponent - grid)[:, None]))
    residual.subtract_product(whole, low)
    term: Matrix = np.ldexp(whole, (grid - steps)[:, None])
    return term
