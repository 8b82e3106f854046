"""The ridge normal equations in float64: fast, accurate, and not reproducible.

In units of codes the head W = D V, with D = diag(2**-e_j), solves (G + λD²) V = C. The
matrix is scaled by powers of two, S(G + λD²)S, so that its diagonal is near one:
Cholesky makes the same roundings with and without, but nothing can overflow. The factor is
kept in rectangular full packed form (LAPACK working note 199), half the size of G.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpftrf, dpftrs

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import PenaltyError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.gram import RidgeStatistics

UNIT = 2.0**-53  # half the spacing of float64 at 1

Exponents = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RidgeSystem:
    """scales (d,): s_j of S = diag(2**s_j); factor: the packed Cholesky factor of S(…)S."""

    scales: Exponents
    factor: Matrix

    def solve(self, scaled: Matrix) -> Matrix:
        """Return X (d, m) with S(G + λD²)S X = scaled, in float64. May reuse `scaled`."""
        d = len(self.scales)
        solution: Matrix
        scaled = np.asfortranarray(scaled)
        solution, info = dpftrs(d, self.factor, scaled, uplo="L", overwrite_b=True)
        if info:
            raise AssertionError(f"dpftrs: argument {-info}")
        return solution


def column_scales(statistics: RidgeStatistics, config: RidgeConfig) -> Exponents:
    """Return s (d,) such that 2**(2 s_j)·(G_jj + λ·2**(-2 e_j)) lies in [1/4, 4)."""
    exponents = np.array(config.exponents, dtype=np.int64)
    diagonal = statistics.gram.diagonal()
    largest = np.frexp(config.penalty)[1] - 2 * exponents
    gram_exponents = np.frexp(diagonal.astype(np.float64))[1].astype(np.int64)
    largest = np.where(diagonal > 0, np.maximum(largest, gram_exponents), largest)
    scales: Exponents = -((largest + 1) // 2)
    return scales


def factorise(statistics: RidgeStatistics, config: RidgeConfig) -> RidgeSystem:
    """Return the factored system. Allocates three quarters of the size of G at most.

    Raises PenaltyError, naming a larger penalty, if rounding leaves it indefinite.
    """
    d = config.dimension
    scales = column_scales(statistics, config)
    factor = _packed(statistics.gram, scales, _scaled_penalty(scales, config))
    factor, info = dpftrf(d, factor, uplo="L", overwrite_a=True)
    if info:
        raise PenaltyError(
            "the Gram matrix is numerically singular beside this penalty: "
            f"use a penalty of at least {sufficient_penalty(statistics.gram, config):.3g}"
        )
    return RidgeSystem(scales, factor)


def solve_float(statistics: RidgeStatistics, config: RidgeConfig) -> Matrix:
    """Return W (d, c) float64 by one Cholesky factorisation: no bound, O(d³).

    Its bits depend on the number of threads and the processor; the canonical head's do not.
    """
    with threads_for(config.dimension**3 // 3):
        system = factorise(statistics, config)
        scales = system.scales[:, None]
        solution = system.solve(np.ldexp(statistics.moment.astype(np.float64), scales))
    steps = np.array(config.exponents)[:, None]
    weights: Matrix = np.ldexp(solution, scales - steps)
    return weights


def check_penalty(statistics: RidgeStatistics, config: RidgeConfig) -> None:
    """Raise PenaltyError if some later removal might leave a head that cannot be proven.

    Removing rows only lowers G, so the condition number of G + λI never exceeds
    trace/λ + 1: refuse at registration what could fail at a deletion.
    """
    enough = sufficient_penalty(statistics.gram, config)
    if config.penalty < enough:
        raise PenaltyError(
            "after some deletions this penalty may be too small to prove the head: "
            f"use a penalty of at least {enough:.3g}"
        )


def sufficient_penalty(gram: IntMatrix, config: RidgeConfig) -> float:
    """Return a penalty (a power of two, or 0 for no rows) that suffices after every removal."""
    exponents = np.array(config.exponents)
    diagonal = gram.diagonal().astype(np.float64)
    trace = float(np.ldexp(diagonal, 2 * exponents).sum())  # < 2^(63+320+64): finite
    if trace == 0:
        return 0.0
    # A step gains log2(1 / (κ·error)) bits, and refinement demands three. The solve errs by
    # d units at most, the digits kept of it by 2^-44, which is 512 units.
    error = max(config.dimension, 512) * UNIT
    return float(2.0 ** np.ceil(np.log2(8 * error * trace)))


def _scaled_penalty(scales: Exponents, config: RidgeConfig) -> Matrix:
    """λ·2**(2(s_j - e_j)) (d,), formed without overflow."""
    shift = 2 * (scales - np.array(config.exponents))
    diagonal: Matrix = np.ldexp(config.penalty, shift)
    return diagonal


def _packed(gram: IntMatrix, scales: Exponents, penalty: Matrix) -> Matrix:
    """SGS + diag(penalty) as LAPACK's RFP array (TRANSR = N, UPLO = L).

    Written through its transpose: row j of `rfp` is column j of LAPACK's array.
    """
    d = len(gram)
    half, shift = (d + 1) // 2, 1 - d % 2
    powers = np.ldexp(1.0, scales)
    rfp = np.empty((half, d + shift))
    np.multiply(gram[:half], powers, out=rfp[:, shift:])
    rfp[:, shift:] *= powers[:half, None]
    on_diagonal = np.arange(half)
    rfp[on_diagonal, on_diagonal + shift] += penalty[:half]
    if d > half:
        corner = np.multiply(gram[half:, half:], powers[half:], dtype=np.float64)
        corner *= powers[half:, None]
        corner[on_diagonal[: d - half], on_diagonal[: d - half]] += penalty[half:]
        target = rfp[1 - shift :, : d - half]
        np.copyto(target, corner, where=np.tri(d - half, dtype=bool))
    return rfp.ravel()
