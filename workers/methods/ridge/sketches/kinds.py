"""The sketches of a Gram matrix by the name a model is registered with.

However the factor was found, the residual is measured afterwards: ΔG - expand(S, s) in
integers, and a bound on its spectral norm that trusts no solver. A poor sketch of ΔG is still
a valid one.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, ldexp, nextafter, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svd
from scipy.linalg.blas import dgemm, dsymm

from workers.arrays import Codes, IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import ExactnessError, RefusedError
from workers.methods.ridge.sketches.sketch import LARGEST, Sketch, expand, to_integers
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.statistics.message import Message

# An entry of the message fits int32. Rounding to it is below 2^-30 of ΔG's largest entry,
# times the root of the rank, which the residual includes.
ENTRY_BITS = 32
NOISE = 2.0**-52  # per column, relative to the largest eigenvalue: a solver's zero
UNIT = 2.0**-53
SQUARINGS = 4  # rank 768 at equal eigenvalues: 23 % above the norm
# Covers the roundings of the bound's own evaluation: norms of d² float64 numbers, d <= 2^15.
SLACK = 1 + 2.0**-20

Factors = Callable[[Matrix, Matrix | None, int, int], Matrix]


def sketch(
    gram: IntMatrix,
    rank: int,
    kind: str = "eigen",
    *,
    codes: Codes | None = None,
    exponents: Sequence[int] | None = None,
    seed: int = 0,
    bits: int = ENTRY_BITS,
    enough: float = 0.0,
) -> Sketch:
    """Return a sketch of gram (d, d) int64, a Gram matrix, of `rank` rows at most.

    codes (k, d): its rows, if available; only speed and quality depend on them. exponents:
    the steps of the columns; with them the error is minimised and measured for the features
    2^e_j·code_j, without them for the codes. bits: width of an entry; enough: a bound this
    small is not sharpened, which takes O(d³). Raises RefusedError for an unknown kind, a rank
    below 1 or a matrix that is not square and symmetric, ExactnessError for entries of 2^62
    or more.
    """
    if kind not in FACTORS:
        raise RefusedError(f"unknown sketch: choose one of {', '.join(known())}")
    if rank < 1 or seed < 0:
        raise RefusedError("rank must be at least 1, and seed 0 or more")
    if gram.ndim != 2 or gram.dtype != np.int64 or not np.array_equal(gram, gram.T):
        raise RefusedError("the Gram matrix must be a symmetric int64 matrix")
    if max(int(gram.max()), -int(gram.min())) >= LARGEST:
        raise ExactnessError("the batch is too large for a sketch: send smaller ones")
    d = len(gram)
    if codes is not None and codes.shape[1:] != (d,):
        raise RefusedError("the codes have another number of columns than their Gram matrix")
    steps = np.zeros(d, dtype=np.int64)
    if exponents is not None:
        steps = np.array(exponents, dtype=np.int64) - max(exponents)
    weighted: Matrix = np.ldexp(np.ldexp(gram.astype(np.float64), steps), steps[:, None])
    rows = None if codes is None else np.ldexp(codes.astype(np.float64), steps)
    with threads_for(2 * d * d * min(rank, d)):
        factor = FACTORS[kind](weighted, rows, min(rank, d), seed)
    # A row of a factor never exceeds the root of the diagonal; noise in columns of small
    # steps might, and would cost the other columns their digits.
    reach = np.sqrt(np.maximum(gram.diagonal(), 0).astype(np.float64))
    in_codes = np.clip(np.ldexp(factor, -steps), -reach, reach)
    integers, shift = to_integers(in_codes, bits)
    residual = measured_residual(gram, integers, shift, exponents, enough=enough)
    return Sketch(integers, shift, residual, kind, seed)


def measured_residual(
    gram: IntMatrix,
    factor: IntMatrix,
    shift: int,
    exponents: Sequence[int] | None = None,
    *,
    enough: float = 0.0,
) -> float:
    """Return a number no less than ‖D(gram - expand(factor, shift))D‖₂, D = diag(2**e).

    0.0 if and only if they are equal; enough: as in `spectral_bound`. Raises as
    `spectral_bound` and `expand`.
    """
    return spectral_bound(gram - expand(factor, shift), exponents, enough=enough)


def spectral_bound(
    matrix: IntMatrix, exponents: Sequence[int] | None = None, *, enough: float = 0.0
) -> float:
    """Return a number no less than ‖D·matrix·D‖₂, D = diag(2**exponents), None: identity.

    It trusts no eigenvalue solver. ‖A‖₂² = ‖A²‖₂ for symmetric A, and fl(A·A) differs from A²
    by at most γ·|A||A| in every entry (γ = d·u/(1 - d·u), any order of summation), hence by
    γ·‖A‖_F² in norm:

        ‖A‖₂ <= (‖fl(A·A)‖₂ + γ·‖A‖_F²)^½,      and at last ‖·‖₂ <= min(‖·‖_F, ‖·‖_∞).

    After p squarings this exceeds ‖A‖₂ by a factor of rank(A)^(1/2^(p+1)) at most.

    matrix (d, d) is symmetric int64. O(d³), or O(d²) if that gives a bound of at most
    `enough`; 0.0 if and only if it is zero. Raises RefusedError for steps outside 2^±200 or
    another number of them.
    """
    if not matrix.any():
        return 0.0
    steps = np.zeros(len(matrix), dtype=np.int64)
    if exponents is not None:
        if len(exponents) != len(matrix) or max(map(abs, exponents)) > 200:
            raise RefusedError("exponents: give one from -200 to 200 for each column")
        steps = np.array(exponents, dtype=np.int64)
    # float64 holds each entry to u relatively: within SLACK. Scaling is exact.
    scaled: Matrix = np.ldexp(np.ldexp(matrix.astype(np.float64), steps), steps[:, None])
    rough = _bound(scaled, 0) * SLACK
    if rough <= enough:
        return rough
    with threads_for(2 * len(matrix) ** 3):
        return _bound(scaled, SQUARINGS) * SLACK


def _bound(matrix: Matrix, squarings: int) -> float:
    """Return a number no less than ‖matrix‖₂ but for SLACK; matrix is symmetric."""
    peak = float(np.abs(matrix).max())
    exponent = int(np.frexp(peak)[1])
    # At most 1, so that squares cannot overflow; what underflows is far below γ.
    unit: Matrix = np.ldexp(matrix, -exponent)
    frobenius = float(np.sqrt(np.square(unit).sum()))
    bound = min(frobenius, float(np.abs(unit).sum(axis=0).max()))
    if squarings and bound > 0:
        square: Matrix = dsymm(1.0, unit.T, unit.T)
        gamma = 2 * len(unit) * UNIT  # twice: d·u < 1/2
        squared = _bound((square + square.T) / 2, squarings - 1)
        bound = min(bound, sqrt(squared + gamma * frobenius**2))
    return ldexp(bound, exponent)


def known() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    return tuple(sorted(FACTORS))


def _eigen(gram: Matrix, rows: Matrix | None, rank: int, _: int) -> Matrix:
    if rows is not None and len(rows) <= len(gram):
        return top_factor_of_rows(rows, rank)
    return top_factor(gram, rank)


def _projection(gram: Matrix, _rows: Matrix | None, rank: int, seed: int) -> Matrix:
    return projected_factor(gram, rank, seed)


def _directions(gram: Matrix, rows: Matrix | None, rank: int, _: int) -> Matrix:
    # Without rows: those of the eigendecomposition, largest first.
    return frequent_directions(top_factor(gram, len(gram)) if rows is None else rows, rank)


def top_factor(matrix: Matrix, rank: int) -> Matrix:
    """Return F (r, d), r <= rank, whose FᵀF is the truncation of `matrix` (d, d) >= 0.

    The best approximation of rank r in the spectral norm. Source: "Exact Federated Continual
    Unlearning for Ridge Heads on Frozen Foundation Models", appendix A2.1. The neglected part
    has the norm λ_(r+1) (Eckart, Young 1936). Rows are √λ_i·v_iᵀ, largest first; O(d³).
    Directions without weight are dropped.
    """
    d = len(matrix)
    first = max(0, d - rank)
    values, vectors = eigh(matrix, subset_by_index=[first, d - 1])
    kept = values > d * NOISE * max(float(values[-1]), 0.0)
    rows: Matrix = (np.sqrt(values[kept]) * vectors[:, kept]).T[::-1]
    return rows


def top_factor_of_rows(rows: Matrix, rank: int) -> Matrix:
    """Return `top_factor` of rowsᵀrows, rows (k, d): O(k²d + k³), better for k < d.

    For u_i the eigenvectors of rows·rowsᵀ, u_iᵀ·rows is √λ_i·v_iᵀ without a division. For
    k <= rank this is a rotation of the rows: nothing is neglected.
    """
    k = len(rows)
    first = max(0, k - rank)
    if not k:
        return rows
    _, vectors = eigh(product(rows, rows.T), subset_by_index=[first, k - 1])
    return product(vectors.T[::-1], rows)


def frequent_directions(rows: Matrix, rank: int) -> Matrix:
    """Return F (r, d), r <= rank, that sketches rowsᵀrows, for rows (k, d), in one pass.

    Source: Liberty 2013, "Simple and deterministic matrix sketching"; Ghashami, Liberty,
    Phillips, Woodruff 2016. Whenever the buffer of 2r rows is full, its spectrum is lowered
    by σ_(r+1)². The result is never above G in the PSD order and, for every p <= r, ‖G - FᵀF‖
    <= (λ_(p+1) + … + λ_d) / (r + 1 - p): known before the rows are. O(k·d·rank). Up to `rank`
    rows come back as they are.
    """
    buffer = rows[:rank]
    for start in range(rank, len(rows), rank):
        buffer = shrink(np.vstack([buffer, rows[start : start + rank]]), rank)
    return buffer


def shrink(buffer: Matrix, rank: int) -> Matrix:
    """Return `rank` rows at most: the right singular vectors times (σ_i² - σ_(r+1)²)^½."""
    if len(buffer) <= rank:
        return buffer
    _, sizes, directions = svd(buffer, full_matrices=False)
    cut = sizes[rank] if len(sizes) > rank else 0.0
    # (σ - c)(σ + c) loses no digits where σ is near c.
    lowered = np.sqrt((sizes[:rank] - cut) * (sizes[:rank] + cut))
    kept: Matrix = lowered[:, None] * directions[:rank]
    return np.compress(lowered > 0, kept, axis=0)


FACTORS: dict[str, Factors] = {
    "eigen": _eigen,
    "frequent-directions": _directions,
    "random-projection": _projection,
}


def product(left: Matrix, right: Matrix) -> Matrix:
    """Return left (m, k) @ right (k, n); zeros for k = 0, which BLAS refuses."""
    if 0 in left.shape or 0 in right.shape:
        return np.zeros((left.shape[0], right.shape[1]))
    result: Matrix = dgemm(1.0, right.T, left.T)
    return result.T


# Random projection: G seen through r random directions, one pass and no eigenvectors of G.
#
# The estimate of rank r is G's best from GΩ alone, the Nyström approximation (GΩ)(ΩᵀGΩ)⁺(GΩ)ᵀ
# (Halko, Martinsson, Tropp 2011, section 5.4; Tropp et al. 2017): never above G in the PSD
# order, and its expected error is that of the best rank p < r - 1, times 1 + p/(r - p - 1),
# plus a like share of the spectrum's tail. Random features ΩX alone, without the inverse, would
# err by about ‖G‖·√(d/r).
# Directions of ΩᵀGΩ below this share of its largest are noise of GΩ: dividing by their
# roots would bring in errors of more than 2^-53 / 2^-20 of G.
NEGLIGIBLE = 2.0**-40


def projected_factor(matrix: Matrix, rank: int, seed: int) -> Matrix:
    """Return F (r, d), r <= rank, with FᵀF the estimate of `matrix` (d, d) >= 0."""
    directions = random_directions(len(matrix), min(rank, len(matrix)), seed)
    seen = product(matrix, directions)
    core = product(directions.T, seen)
    values, vectors = eigh((core + core.T) / 2)
    kept = values > NEGLIGIBLE * max(float(values[-1]), 0.0)
    turned = product(vectors[:, kept].T, seen.T)
    factor: Matrix = turned / np.sqrt(values[kept])[:, None]
    return factor


def random_directions(rows: int, columns: int, seed: int) -> Matrix:
    """Return numbers in (-1, 1) (rows, columns) from SHAKE-256, the same for ever.

    Odd multiples of 2^-16, evenly spread. Signs alone would do for real numbers, but small
    integers are orthogonal to a vector of signs all too often.
    """
    stream = hashlib.shake_256(f"lethe/sketch/{seed}/{rows}x{columns}".encode())
    drawn = np.frombuffer(stream.digest(2 * rows * columns), dtype="<u2").astype(np.float64)
    directions: Matrix = ((2 * drawn + 1) / 2.0**16 - 1).reshape(rows, columns)
    return directions


# A sketch in place of the Gram matrix of a message, from the client to the server.
#
# The client sends factor, shift, moment, counts and the residual it measured; both sides expand
# the factor to the same integers. The residual is only attested by the client: the server never
# sees what was neglected, so the residual stays in every bound for good.
def compress(
    message: Message,
    rank: int,
    kind: str = "eigen",
    *,
    codes: Codes | None = None,
) -> tuple[Sketch, Message]:
    """Return the sketch of a message, and the message a server reconstructs from it.

    The residual is relative to the rows, so it includes the residual of `message`. Neither
    result has a factor R, which would reveal the whole Gram matrix. Raises as
    `sketches.kinds.sketch`.
    """
    small = sketch(message.statistics.gram, rank, kind, codes=codes)
    expanded = from_sketch(small, message.statistics.moment, message.counts)
    if message.residual == 0:
        return small, expanded
    both = nextafter(expanded.residual + message.residual, inf)
    return replace(small, residual=both), replace(expanded, residual=both)


def from_sketch(small: Sketch, moment: IntMatrix, counts: NDArray[np.int64]) -> Message:
    """Return the message with the integers that the sketch stands for as its Gram matrix.

    The residual is copied, in codes squared. `check_message` decides whether rows can have
    it. Raises as `expand`.
    """
    gram = expand(small.factor, small.shift)
    statistics = RidgeStatistics(gram, moment, int(counts.sum()))
    return Message(statistics, counts, None, small.residual)
