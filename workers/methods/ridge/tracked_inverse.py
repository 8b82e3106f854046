"""(XᵀX + λI)⁻¹ kept up to date by Sherman-Morrison-Woodbury.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
equations (7) and (9), lemma 1; the same recursions are (5) and (45) of "ACU: Analytic
Continual Unlearning", where the inverse is called the Knowledge Tracking Matrix.

Stored is P = 4^q·(XᵀX + λI)⁻¹ with λ = m·4^q, 1 <= m < 4. Powers of two change no rounding,
P = I/m when nothing was learned, its eigenvalues lie in (0, 1/m], and nothing overflows
for any penalty. Rows and heads enter as 2^-q·X and 2^q·W.
"""

from dataclasses import dataclass
from math import frexp, ldexp

import numpy as np
from scipy.linalg.blas import dgemm, dsymm, dsyrk
from scipy.linalg.lapack import dgeqrf, dpftri, dpocon, dpotrf, dpstrf, dtfttr, dtrtrs

from workers.arrays import Matrix, Rows
from workers.blas_threads import threads_for
from workers.errors import ModelError, RefusedError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_system import RidgeSystem
from workers.methods.ridge.statistics.factor import check_form
from workers.methods.ridge.statistics.gram import mirror
from workers.methods.ridge.statistics.message import Batch, Message

# The part of P that is left in some direction, where half of float64's digits cancel: the
# least eigenvalue of I - UᵀPU (1 - h for one row of leverage h, near 0 only if no other row
# holds up its direction), and for rows that are added 1/‖I + UᵀPU‖.
ILL_CONDITIONED = 2.0**-26


class BrokenUpdateError(ModelError):
    """The inverse could not be updated; `reason` is the reset this calls for."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the tracked inverse cannot be updated: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class RankUpdate:
    """inverse (d, d): P after the update; gain (d, k): P after it, times U."""

    inverse: Matrix
    gain: Matrix


def penalty_exponent(config: RidgeConfig) -> int:
    """Return q with penalty = m·4^q and 1 <= m < 4."""
    return (frexp(config.penalty)[1] - 1) // 2


def empty_inverse(config: RidgeConfig) -> Matrix:
    """Return P (d, d) of no rows: I/m."""
    inverse = np.zeros((config.dimension, config.dimension))
    np.fill_diagonal(inverse, 1 / ldexp(config.penalty, -2 * penalty_exponent(config)))
    return inverse


def invert(system: RidgeSystem, config: RidgeConfig) -> Matrix:
    """Return P (d, d), exactly symmetric, of a factored system: O(d³). Consumes the factor."""
    d = config.dimension
    packed, info = dpftri(d, system.factor, uplo="L", overwrite_a=True)
    if info:
        raise AssertionError(f"dpftri: argument {-info}")
    full, info = dtfttr(d, packed, uplo="L")
    if info:
        raise AssertionError(f"dtfttr: argument {-info}")
    inverse = np.ascontiguousarray(full.T)  # LAPACK's lower triangle is our upper one
    # From S(G + λD²)S to feature units: every factor is a power of two.
    shift = system.scales - np.array(config.exponents) + penalty_exponent(config)
    np.ldexp(inverse, shift[:, None], out=inverse)
    np.ldexp(inverse, shift, out=inverse)
    mirror(inverse)
    return inverse


def rank_update(
    inverse: Matrix, roots: Matrix, sign: int, *, in_place: bool = False
) -> RankUpdate:
    """Return P after adding (sign +1) or deleting (-1) UUᵀ, for Uᵀ = roots (k, d).

    O(kd²). Equation (7): P - V(I + UᵀV)⁻¹Vᵀ with V = PU; (9): P + V(I - UᵀV)⁻¹Vᵀ. in_place:
    the caller's matrix becomes the result, unless this raises. Raises BrokenUpdateError
    "infeasible" unless I ± UᵀPU is positive definite (for a deletion that is lemma 1),
    "ill-conditioned" if too many digits would cancel.
    """
    k = len(roots)
    side = dsymm(1.0, inverse.T, roots.T)  # V
    middle = np.asfortranarray(np.eye(k))
    middle = dgemm(float(sign), roots, side, beta=1.0, c=middle, overwrite_c=True)
    norm = float(np.abs(middle).sum(axis=0).max())
    factor, info = dpotrf(middle, lower=True, clean=True, overwrite_a=True)
    if info or not np.isfinite(factor).all():
        raise BrokenUpdateError("infeasible" if sign < 0 else "ill-conditioned")
    left = 1 / norm if sign > 0 else dpocon(factor, 1.0, uplo="L")[0]  # 1/‖(I - UᵀPU)⁻¹‖
    if not left >= ILL_CONDITIONED:
        raise BrokenUpdateError("ill-conditioned")
    half, _ = dtrtrs(factor, side.T, lower=True)  # L⁻¹Vᵀ
    updated = inverse if in_place else inverse.copy()
    dsyrk(-float(sign), half, beta=1.0, c=updated.T, trans=True, lower=True, overwrite_c=True)
    mirror(updated)
    gain, _ = dtrtrs(factor, half, lower=True, trans=True)
    return RankUpdate(updated, gain.T)


def product(left: Matrix, right: Matrix) -> Matrix:
    """Return left (m, k) @ right (k, n) by SciPy's BLAS (`statistics.gram` says why).

    The bits depend on the arguments alone and not on their memory layout, so that a state
    read from a file continues like the one written.
    """
    rows, columns = np.ascontiguousarray(left), np.ascontiguousarray(right)
    transposed: Matrix = dgemm(1.0, columns.T, rows.T)
    return transposed.T


# A batch as the input of a rank update: Uᵀ with UUᵀ = ΔG.
#
# Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
# section 5, "Constructing U via client QR factors". For k <= d rows the rows themselves serve,
# without a rounding: Uᵀ = X, and ΔC = UZ with Z = Y. For more, the triangle of the QR
# factorisation of [X Y] holds Uᵀ = R and Z = QᵀY, and its rank is d however many rows there
# are. A message brings R, or it is found by a Cholesky factorisation of ΔG with pivoting.
# For a message of more rows per column and without a factor, Variant A is cheaper: at d = 768
# a reset took 37 ms; for 384 rows Cholesky with pivoting 92 ms, the update 45 ms.
FACTORLESS_LIMIT = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class BatchFactor:
    """roots (r, d): Uᵀ, in units of 2^q as `tracked_inverse`; targets (r, c): Z."""

    roots: Matrix
    targets: Matrix


def factor_batch(rows: Rows, config: RidgeConfig) -> BatchFactor:
    """Return the factor of some rows, of rank min(k, d). The rows must have been checked."""
    roots: Matrix = np.ldexp(rows.codes.astype(np.float64), _shift(config))
    targets: Matrix = np.eye(config.classes)[rows.labels]
    factor = BatchFactor(roots, targets)
    return factor if len(rows) <= config.dimension else _triangular(factor)


def message_roots(message: Message, config: RidgeConfig) -> Matrix:
    """Return Uᵀ (r, d), in units of 2^q, for a message that was checked and `has_roots`.

    The message's own factor, right or wrong, or else one of its Gram matrix.
    """
    own = _own_factor(message)
    return np.ldexp(_pivoted(message) if own is None else own, _shift(config))


def message_moment(message: Message, config: RidgeConfig) -> Matrix:
    """Return ΔC (d, c) in units of 2^q."""
    moment: Matrix = np.ldexp(
        message.statistics.moment.astype(np.float64), _shift(config)[:, None]
    )
    return moment


def has_roots(batch: Batch) -> bool:
    """Whether an update by the roots of this batch is worth more than a reset."""
    if isinstance(batch, Rows) or _own_factor(batch) is not None:
        return True
    return len(batch) <= FACTORLESS_LIMIT * batch.statistics.dimension


def rank_of(batch: Batch) -> int:
    """Return how many roots a batch has at most."""
    if isinstance(batch, Rows):
        return len(batch)
    own = _own_factor(batch)
    return min(len(batch), batch.statistics.dimension) if own is None else len(own)


def _own_factor(message: Message) -> Matrix | None:
    """Return a message's factor, None if it has none or an unusable one."""
    if message.factor is None:
        return None
    try:
        check_form(message.factor, message.statistics.dimension, len(message))
    except RefusedError:
        return None
    return message.factor


def _pivoted(message: Message) -> Matrix:
    """Return (r, d) with RᵀR = ΔG but for rounding, r <= the number of rows."""
    gram = message.statistics.gram
    d = len(gram)
    scales = -(np.frexp(gram.diagonal().astype(np.float64))[1] // 2)
    scaled = np.ldexp(gram.astype(np.float64), scales)
    scaled = np.ldexp(scaled, scales[:, None])  # the columns weigh alike in the stopping rule
    with threads_for(d * d * len(message)):
        # Symmetric, so that LAPACK may have it by rows. info 1 is a rank below d.
        packed, pivots, rank, info = dpstrf(scaled.T, lower=False, overwrite_a=True)
    if info < 0:
        raise AssertionError(f"dpstrf: argument {-info}")
    rank = min(rank, len(message))
    roots = np.empty((rank, d))
    roots[:, pivots - 1] = np.ldexp(np.triu(packed[:rank]), -scales[pivots - 1])
    return roots


def _shift(config: RidgeConfig) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(config.exponents, dtype=np.int64) - penalty_exponent(config)


def _triangular(factor: BatchFactor) -> BatchFactor:
    d = factor.roots.shape[1]
    both = np.hstack([factor.roots, factor.targets])
    triangle, _, _, info = dgeqrf(both)
    if info:
        raise AssertionError(f"dgeqrf: argument {-info}")
    top = np.triu(triangle[:d])
    return BatchFactor(np.ascontiguousarray(top[:, :d]), np.ascontiguousarray(top[:, d:]))
