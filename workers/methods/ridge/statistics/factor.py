"""Triangles R with RᵀR = G: what a client sends for a few rows in place of G.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
section 5, "Constructing U via client QR factors".

G consists of integers, so a triangle in float64 determines it as long as RᵀR, evaluated in
float64, errs by less than a half. Summed in any order, an entry of RᵀR errs by at most
γ_k‖R_i‖‖R_j‖ <= (k + 4)·2^-53·max_j ‖R_j‖² =: e, where ‖R_j‖² = G_jj. Required are e <= 1/8,
which every batch with (k + 4)·n·q_max² <= 2^50 meets, and a distance of at most 1/4 between
the evaluation and the integers: then RᵀR itself is within 3/8 of them, and every other
evaluation within 1/2, on any machine. The sender measures the error of the QR factorisation
itself before sending, and leaves room for two evaluations: distance + 2e <= 1/4.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from scipy.linalg.blas import dgemm
from scipy.linalg.lapack import dgeqrf

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import ExactnessError, RefusedError

NEAR = 0.25  # an evaluation of RᵀR is at most this far from the integers
EVALUATION = 0.125  # and this far from RᵀR
BLOCK_ROWS = 2048
PANEL = 128


def triangle(blocks: Iterable[Matrix], dimension: int) -> Matrix:
    """Return R (min(k, d), d) with RᵀR = Σ AᵀA over blocks A (·, d) of k rows in all.

    Upper trapezoidal, its diagonal not negative. A block at a time is held beside R.
    """
    top = np.zeros((0, dimension))
    for block in blocks:
        for start in range(0, len(block), BLOCK_ROWS):
            top = _reduced(np.vstack([top, block[start : start + BLOCK_ROWS]]))
    return top


def check_form(factor: Matrix, dimension: int, rows: int) -> None:
    """Raise RefusedError unless `factor` is a triangle that `rows` rows can have."""
    if factor.dtype != np.float64 or factor.ndim != 2 or factor.shape[1] != dimension:
        raise RefusedError(f"a factor must be a float64 matrix with {dimension} columns")
    if len(factor) > min(rows, dimension):
        raise RefusedError(
            f"a factor of {len(factor)} rows is wider than {rows} rows of {dimension} "
            "columns can need: send the triangle of a thin QR factorisation"
        )
    if not np.isfinite(factor).all():
        raise RefusedError("a factor holds NaN or infinity: factor finite codes")
    if np.tril(factor, -1).any():
        raise RefusedError("a factor is not upper trapezoidal: send R of a QR factorisation")


def check_exact(factor: Matrix) -> float:
    """Return e, the error of evaluating RᵀR. Raises ExactnessError if it exceeds 1/8."""
    error = _error(factor)
    if not error <= EVALUATION:
        raise _too_large()
    return error


def gram_of(factor: Matrix) -> IntMatrix:
    """Return the integers (d, d) that a factor stands for.

    Raises ExactnessError as `check_exact`, RefusedError if it stands for no integers.
    """
    check_exact(factor)
    d = factor.shape[1]
    gram = np.empty((d, d), dtype=np.int64)
    for i, product in _panels(factor):
        whole = np.rint(product)
        if float(np.abs(product - whole).max()) > NEAR:
            raise _inconsistent()
        gram[i : i + PANEL, i:] = whole
        gram[i:, i : i + PANEL] = gram[i : i + PANEL, i:].T
        # The corner block: copy its upper half onto the lower.
        corner = gram[i : i + PANEL, i : i + PANEL]
        corner[:] = np.triu(corner) + np.triu(corner, 1).T
    return gram


def check_factor(factor: Matrix, gram: IntMatrix) -> None:
    """Raise RefusedError unless RᵀR, as evaluated here, is within 1/4 of `gram`.

    Raises ExactnessError as `check_exact`.
    """
    check_exact(factor)
    if _distance(factor, gram) > NEAR:
        raise _inconsistent()


def check_own_factor(factor: Matrix, gram: IntMatrix) -> None:
    """Raise RefusedError unless RᵀR is within 1/4 of `gram` on any machine.

    For the sender: two evaluations differ by 2e at most. Raises as `check_factor`.
    """
    error = check_exact(factor)
    distance = _distance(factor, gram)
    if distance > 0.5:
        raise _inconsistent()
    if distance > NEAR - 2 * error:
        raise _too_large()


def is_factor(factor: Matrix, gram: IntMatrix) -> bool:
    """Whether `check_factor` passes."""
    return bool(_error(factor) <= EVALUATION and _distance(factor, gram) <= NEAR)


def _error(factor: Matrix) -> float:
    with np.errstate(over="ignore"):
        largest = float(np.einsum("kj,kj->j", factor, factor).max(initial=0.0))
    return (len(factor) + 4) * 2.0**-53 * largest


def _distance(factor: Matrix, gram: IntMatrix) -> float:
    return max(
        float(np.abs(product - gram[i : i + PANEL, i:]).max()) for i, product in _panels(factor)
    )


def _panels(factor: Matrix) -> Iterator[tuple[int, Matrix]]:
    """Yield (i, rows i to i + PANEL of RᵀR from column i on)."""
    d = factor.shape[1]
    for i in range(0, d, PANEL):
        with threads_for(2 * len(factor) * PANEL * (d - i)):
            if not len(factor):
                yield i, np.zeros((min(PANEL, d - i), d - i))
                continue
            product: Matrix = dgemm(1.0, factor[:, i:], factor[:, i : i + PANEL], trans_a=True)
            yield i, product.T


def _reduced(stacked: Matrix) -> Matrix:
    k, d = stacked.shape
    with threads_for(2 * k * d * min(k, d)):
        packed, _, _, info = dgeqrf(stacked, lwork=64 * d)
    if info:
        raise AssertionError(f"dgeqrf: argument {-info}")
    top = np.triu(packed[: min(k, d)])
    signs = np.where(top.diagonal() < 0, -1.0, 1.0)
    # One triangle for one Gram matrix of full rank, whatever the order of the rows.
    return np.ascontiguousarray(top * signs[:, None]) + 0.0


def _inconsistent() -> RefusedError:
    return RefusedError(
        "inconsistent factor: it is not the factor of a Gram matrix of these "
        "codes: factor the very codes of this message, or send gram"
    )


def _too_large() -> ExactnessError:
    return ExactnessError(
        "float64 cannot tell the integers of this Gram matrix from a factor: "
        "send its upper triangle instead, or fewer rows a message"
    )
