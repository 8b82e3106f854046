"""A sketch of a Gram matrix as a message: integers S, a shift s, and what they stand for.

    expand(S, s)_ij = floor((Σ_k S_ki S_kj + half) / 4^s),   half = 4^s / 2 (0 for s = 0)

is a function of integers, evaluated without rounding, so sender and receiver add the very
same matrix to their sums whatever their processors and libraries. How S was found is not
part of it: solvers differ between machines, and no receiver repeats or trusts them.
"""

from dataclasses import dataclass

import numpy as np

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import ExactnessError, RefusedError
from workers.methods.ridge.statistics.gram import integer_product

MAX_SHIFT = 48  # 4^-48 of a code is below what float64 leaves of any factor
MIN_BITS, MAX_BITS = 8, 53
LARGEST = 2.0**62  # a difference of two such integers fits int64


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """factor (r, d) int64 and shift: integers that stand for expand(factor, shift).

    residual: proven ‖D(ΔG - expand)D‖₂ for the ΔG it was made of, D = diag(2**exponents)
    of the steps it was made with, or the identity: then in units of codes squared.
    kind and seed say how it was found. The factor is read-only.
    """

    factor: IntMatrix
    shift: int
    residual: float
    kind: str
    seed: int = 0

    def __post_init__(self) -> None:
        self.factor.setflags(write=False)

    @property
    def rank(self) -> int:
        """Rows of the factor."""
        return len(self.factor)

    @property
    def payload_bytes(self) -> int:
        """Bytes of the factor in the narrowest of int8, int16, int32, int64."""
        widest = int(np.abs(self.factor).max(initial=0)).bit_length() + 1
        return self.factor.size * next(width for width in (1, 2, 4, 8) if widest <= 8 * width)


def expand(factor: IntMatrix, shift: int) -> IntMatrix:
    """Return the symmetric int64 matrix (d, d) that factor (r, d) and shift stand for.

    Exact, in O(r d²): the same bits everywhere. Raises RefusedError for a malformed factor
    or shift, ExactnessError if an entry could reach 2^62.
    """
    if factor.dtype != np.int64 or factor.ndim != 2 or not 0 <= shift <= MAX_SHIFT:
        raise RefusedError(
            f"a sketch is an int64 matrix and a shift of 0 to {MAX_SHIFT}: recompute it"
        )
    rows, d = factor.shape
    if max(int(factor.max(initial=0)), -int(factor.min(initial=0))) > 2**MAX_BITS:
        raise ExactnessError(f"an entry of the sketch exceeds {MAX_BITS} bits: recompute it")
    # Cauchy-Schwarz: no entry exceeds the largest on the diagonal. float64 is within 2^-40.
    sizes = np.square(factor.astype(np.float64)).sum(axis=0)
    if sizes.max(initial=0.0) >= LARGEST * 4.0**shift / 2:
        raise ExactnessError("the sketch stands for numbers beyond int64: send smaller batches")
    if not factor.any():
        return np.zeros((d, d), dtype=np.int64)
    base = _base_bits(rows)
    places = _places(factor, base)
    sums = [np.zeros((d, d), dtype=np.int64) for _ in range(2 * len(places))]
    with threads_for(2 * factor.size * d):
        for i, left in enumerate(places):
            for j in range(i, len(places)):
                product = integer_product(left.T, places[j])
                sums[i + j] += product if i == j else product + product.T
    return _rounded(sums, base, 2 * shift)


def to_integers(factor: Matrix, bits: int) -> tuple[IntMatrix, int]:
    """Return (integers, shift) for a factor (r, d) in units of codes.

    The shift is the largest at which every entry fits `bits` bits with its sign, and at least
    0; factors of 2 common to all entries are cancelled, and zero rows dropped. Raises
    RefusedError for other widths, or numbers that are not finite.
    """
    if not MIN_BITS <= bits <= MAX_BITS:
        raise RefusedError(f"{bits} bits for an entry: choose {MIN_BITS} to {MAX_BITS}")
    if not np.isfinite(factor).all():
        raise RefusedError("the factor is not a number: rescale the features")
    exponent = int(np.frexp(np.abs(factor).max(initial=0.0))[1])
    # One bit for the sign and one for rounding up to a power of two.
    shift = min(max(bits - 2 - exponent, 0), MAX_SHIFT)
    integers = np.rint(np.ldexp(factor, shift)).astype(np.int64)
    used = np.bitwise_or.reduce(np.abs(integers), axis=None) if integers.size else np.int64(0)
    common = min(shift, _trailing_zeros(int(used)))
    return integers[integers.any(axis=1)] >> common, shift - common


def _base_bits(rows: int) -> int:
    """Return the widest b such that float64 sums `rows` products of balanced places exactly.

    rows·2^(2(b-1)) <= 2^53.
    """
    return (55 - (rows - 1).bit_length()) // 2


def _places(factor: IntMatrix, base: int) -> list[Matrix]:
    """Return balanced places, lowest first: factor = Σ places[i]·2^(base·i)."""
    half, rest, places = 1 << (base - 1), factor, []
    while rest.any():
        above = (rest + half) >> base
        places.append((rest - (above << base)).astype(np.float64))
        rest = above
    return places


def _rounded(sums: list[IntMatrix], base: int, drop: int) -> IntMatrix:
    """Return floor((T + 2^(drop-1)) / 2^drop) of T = Σ sums[i]·2^(base·i), exactly."""
    while len(sums) * base <= drop:
        sums.append(np.zeros_like(sums[0]))
    if drop:
        place, bit = divmod(drop - 1, base)
        sums[place] += np.int64(1) << bit
    # Digits 0 <= digit < 2^base but for the last, so that cutting places off is a floor.
    for place in range(len(sums) - 1):
        carried = sums[place] >> base
        sums[place + 1] += carried
        sums[place] -= carried << base
    first, bits = divmod(drop, base)
    result: IntMatrix = sums[first] >> bits
    for place in range(first + 1, len(sums)):
        # What does not fit int64 here is zero, or -1 that only spells the sign: the sum is
        # right modulo 2^64, and its size was checked.
        width = base * (place - first) - bits
        if width < 64:
            result = result + (sums[place] << width)
    return result


def _trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1 if value else MAX_SHIFT
