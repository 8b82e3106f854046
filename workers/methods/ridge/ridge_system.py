"""The ridge normal equations in float64: fast, accurate, and not reproducible.

In units of codes the head W = D V, with D = diag(2**-e_j), solves (G + λD²) V = C. The
matrix is scaled by powers of two, S(G + λD²)S, so that its diagonal is near one:
Cholesky makes the same roundings with and without, but nothing can overflow. The factor is
kept in rectangular full packed form (LAPACK working note 199), half the size of G.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpftrf, dpftrs

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import PenaltyError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.gram import RidgeStatistics, integer_product

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
        enough = not_below(sufficient_penalty(statistics.gram, config))
        raise PenaltyError(
            "the Gram matrix with this penalty is numerically singular: "
            f"use a penalty of at least {enough}"
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
            f"use a penalty of at least {not_below(enough)}"
        )


def sufficient_penalty(gram: IntMatrix, config: RidgeConfig) -> float:
    """Return a penalty (a power of two, or 0 for no rows) that suffices after every removal."""
    exponents = np.array(config.exponents)
    diagonal = gram.diagonal().astype(np.float64)
    trace = float(np.ldexp(diagonal, 2 * exponents).sum())  # < 2^(63+320+64): finite
    if trace == 0:
        return 0.0
    # A step gains log2(1 / (κ·error)) bits, and refinement demands three. The solve errs by
    # d units at most, the digits kept of it by 2^-44, which is 512 units. Of sums, the verifier
    # cannot tell an eigenvalue of 0 from one of -16·(d + 2) units of the trace
    # (`posterior.least_eigenvalue`), which must not be below -λ/2.
    error = max(config.dimension, 512) * UNIT
    if config.unseen:
        error = max(error, 4 * (config.dimension + 3) * UNIT)
    return float(2.0 ** np.ceil(np.log2(8 * error * trace)))


def not_below(penalty: float) -> str:
    """Return a number of three digits that is not below a penalty: 1024 becomes 1.03e+03."""
    text = f"{penalty:.3g}"
    return text if float(text) >= penalty else f"{penalty * 1.005:.3g}"


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


Places = NDArray[np.int32]  # (p, d, m), balanced


def base_bits(dimension: int) -> int:
    """Return the largest base with d·(2^(base-1))² <= 2^53: one product of places is exact.

    24 at most, so that places fit int32 with their carries.
    """
    return min(24, (55 - (dimension - 1).bit_length()) // 2)


# The residual C - (G + λD²)V of the ridge equations, without any rounding.
#
# Numbers are fixed-point: Σ_i places[i]·2^(base·(low + i)) with integer places. G is cut into
# places of `base` bits and so is V, narrow enough that a float64 matrix product of places sums
# below 2^53 and is exact on every BLAS; sums over places are int64; carries bring them back to
# |place| <= 2^(base-1). λ is a float64, hence a 53-bit integer times a power of two, and takes
# part as such.
class ExactResidual:
    """R (d, m) = C - (G + λD²)V for the columns of one block, starting from V = 0.

    gram (d, d) and moment (d, m) are int64 and must come from rows (|G_ij| <= max G_jj).
    Holds R only: memory is a few int32 (d, m) arrays plus a panel of G of `panel` rows.
    """

    def __init__(
        self,
        gram: IntMatrix,
        moment: IntMatrix,
        config: RidgeConfig,
        panel: int | None = None,
    ) -> None:
        d = len(gram)
        self.base = base_bits(d)
        self._gram = gram
        self._penalty = _penalty_places(config, self.base)
        # One spare bit keeps the last place of G within 2^(base-1) after rounding.
        gram_bits = int(gram.diagonal().max(initial=0)).bit_length() + 2
        self._gram_places = max(1, -(-gram_bits // self.base))
        self._panel = panel or max(16, d // 16)
        self.low = 0
        moment_bits = int(np.abs(moment).max(initial=0)).bit_length() + 2
        start = np.zeros((-(-moment_bits // self.base) + 1, *moment.shape), np.int64)
        start[0] = moment
        _carry(start, self.base)
        self.places: Places = start.astype(np.int32)
        self._trim()

    def subtract_product(self, step: Matrix, low: int) -> None:
        """R -= (G + λD²)V for V = step·2^(base·low); step (d, m) holds integers.

        The entries may be any integers that float64 can hold, however large.
        """
        d, m = step.shape
        stacked = _split(step, self.base)
        count = stacked.shape[1] // m
        weights = [*range(self._gram_places), *self._penalty]
        bottom = min(self.low, low + min(weights))
        # Sums stay below 2^60: this many places above the highest hold their carries.
        room = -(-(61 - self.base) // self.base)
        top = max(self.low + len(self.places), low + max(weights) + count + room)
        result = np.empty((top - bottom, d, m), dtype=np.int32)
        for i in range(0, d, self._panel):
            panel = slice(i, i + self._panel)
            sums = np.zeros((top - bottom, len(self._gram[panel]), m), dtype=np.int64)
            start = self.low - bottom
            sums[start : start + len(self.places)] = self.places[:, panel]
            for weight, limb in enumerate(self._limbs(panel)):
                product = integer_product(limb, stacked)
                for k in range(count):
                    sums[low + weight + k - bottom] -= product[:, k * m : (k + 1) * m]
            for weight, place in self._penalty.items():
                if place[panel].any():
                    for k in range(count):
                        digit = stacked[panel, k * m : (k + 1) * m].astype(np.int64)
                        sums[low + weight + k - bottom] -= place[panel, None] * digit
            _carry(sums, self.base)
            result[:, panel] = sums
        self.places, self.low = result, bottom
        self._trim()

    def approximate(self) -> tuple[Matrix, int]:
        """Return (r, e) with R = r·2^e: each entry of r (d, m) to within 2^-48 of itself.

        Entries below 2^-900 of the largest may be rounded to zero.
        """
        value = np.zeros(self.places.shape[1:])
        for place in self.places:  # lowest first: balanced places cannot cancel
            value *= 2.0**-self.base
            value += place
        return value, self.base * (self.low + len(self.places) - 1)

    def zero_columns(self) -> NDArray[np.bool_]:
        """Return (m,): where R is exactly zero, so that V is the exact solution."""
        return np.logical_not(self.places.any(axis=(0, 1)))

    def _limbs(self, panel: slice) -> Iterator[Matrix]:
        """Yield the places of some rows of G, lowest first, as float64."""
        rest = self._gram[panel]
        half = 1 << (self.base - 1)
        for _ in range(self._gram_places - 1):
            carried = rest + half
            carried >>= self.base
            limb = carried << self.base
            np.subtract(rest, limb, out=limb)
            yield limb.astype(np.float64)
            rest = carried
        yield rest.astype(np.float64)

    def _trim(self) -> None:
        """Drop zero places at both ends, keeping at least one."""
        used = np.flatnonzero(self.places.any(axis=(1, 2)))
        first, last = (int(used[0]), int(used[-1])) if len(used) else (0, 0)
        self.places = self.places[first : last + 1]
        self.low += first


def _split(step: Matrix, base: int) -> Matrix:
    """Return the balanced places (d, p·m) of integers held in float64, lowest first.

    Exact.
    """
    digits = []
    scale = 2.0**base
    while np.abs(step).max(initial=0.0) > scale / 2:
        carried = np.rint(step / scale)
        digits.append(step - carried * scale)  # a multiple of step's last bit: exact
        step = carried
    return np.concatenate([*digits, step], axis=1)


def _carry(sums: IntMatrix, base: int) -> None:
    """Balance the places of `sums` (p, …) in place; its top must have room."""
    half = 1 << (base - 1)
    for place, above in itertools.pairwise(sums):
        carried = (place + half) >> base
        above += carried
        carried <<= base
        place -= carried
    if np.abs(sums[-1]).max(initial=0) > half:
        raise AssertionError("the topmost place overflowed")


@lru_cache(maxsize=4)  # the blocks of one head share it
def _penalty_places(config: RidgeConfig, base: int) -> dict[int, IntMatrix]:
    """λ·2**(-2 e_j) for each j, exactly, as {weight: places (d,)}."""
    numerator, denominator = config.penalty.as_integer_ratio()
    trailing = (numerator & -numerator).bit_length() - 1
    odd, exponent = numerator >> trailing, trailing - denominator.bit_length() + 1
    places: dict[int, IntMatrix] = {}
    steps = np.array(config.exponents)
    for step in np.unique(steps):
        weight, shift = divmod(exponent - 2 * int(step), base)
        rest = odd << shift
        while rest:
            row = places.setdefault(weight, np.zeros(config.dimension, dtype=np.int64))
            row[steps == step] = rest & ((1 << base) - 1)
            rest, weight = rest >> base, weight + 1
    return places
