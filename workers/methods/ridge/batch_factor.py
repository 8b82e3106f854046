"""A batch as the input of a rank update: Uᵀ with UUᵀ = ΔG.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
section 5, "Constructing U via client QR factors". For k <= d rows the rows themselves
serve, without a rounding: Uᵀ = X, and ΔC = UZ with Z = Y. For more, the triangle of the QR
factorisation of [X Y] holds Uᵀ = R and Z = QᵀY, and its rank is d however many rows there
are. A message brings R, or it is found by a Cholesky factorisation of ΔG with pivoting.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dgeqrf, dpstrf

from workers.arrays import Matrix, Rows
from workers.blas_threads import threads_for
from workers.errors import RefusedError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.factor import check_form
from workers.methods.ridge.statistics.message import Batch, Message
from workers.methods.ridge.tracked_inverse import penalty_exponent

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
