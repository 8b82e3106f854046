"""The sketches of a Gram matrix by the name a model is registered with.

However the factor was found, the residual is measured afterwards: ΔG - expand(S, s) in
integers, and a bound on its spectral norm that trusts no solver. A poor sketch of ΔG is still
a valid one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from workers.arrays import Codes, IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import ExactnessError, RefusedError
from workers.methods.ridge.sketches.directions import frequent_directions
from workers.methods.ridge.sketches.eigen import top_factor, top_factor_of_rows
from workers.methods.ridge.sketches.projection import projected_factor
from workers.methods.ridge.sketches.sketch import LARGEST, Sketch, expand, to_integers
from workers.methods.ridge.sketches.spectral import spectral_bound

# An entry of the message fits int32. Rounding to it is below 2^-30 of ΔG's largest entry,
# times the root of the rank, which the residual includes.
ENTRY_BITS = 32

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
    if kind not in _FACTORS:
        raise RefusedError(f"unknown sketch: choose one of {', '.join(known())}")
    if rank < 1 or seed < 0:
        raise RefusedError("a sketch needs a rank of at least 1 and a seed of at least 0")
    if gram.ndim != 2 or gram.dtype != np.int64 or not np.array_equal(gram, gram.T):
        raise RefusedError("a Gram matrix is a symmetric int64 matrix")
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
        factor = _FACTORS[kind](weighted, rows, min(rank, d), seed)
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


def known() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    return tuple(sorted(_FACTORS))


def _eigen(gram: Matrix, rows: Matrix | None, rank: int, _: int) -> Matrix:
    if rows is not None and len(rows) <= len(gram):
        return top_factor_of_rows(rows, rank)
    return top_factor(gram, rank)


def _projection(gram: Matrix, _rows: Matrix | None, rank: int, seed: int) -> Matrix:
    return projected_factor(gram, rank, seed)


def _directions(gram: Matrix, rows: Matrix | None, rank: int, _: int) -> Matrix:
    # Without rows: those of the eigendecomposition, largest first.
    return frequent_directions(top_factor(gram, len(gram)) if rows is None else rows, rank)


_FACTORS: dict[str, Factors] = {
    "eigen": _eigen,
    "frequent-directions": _directions,
    "random-projection": _projection,
}
