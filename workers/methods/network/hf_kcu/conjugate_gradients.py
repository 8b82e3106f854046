"""Matrix-free conjugate gradients, with a report of the run.

Source: HF-KCU, Algorithm 1 lines 6 to 14 (Hestenes and Stiefel 1952), preconditioned, and
stopped where the matrix is not positive definite (Steihaug 1983). The scalars of the
recurrence are those of a Lanczos process: its eigenvalues (Ritz values) lie inside the
spectrum and bound the condition number from below without another product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Literal

import numpy as np
import torch

from workers.errors import RefusedError

Product = Callable[[torch.Tensor], torch.Tensor]  # v (d,) float64 to A v (d,) float64

_ZERO = 1e-150  # its square does not underflow
_NOISE = 1e-5  # a residual below it is rounding of float32 products

Outcome = Literal[
    "converged",  # the residual is below the tolerance
    "iterations",  # the budget ended first
    "negative-curvature",  # pᵀAp <= 0: A is not positive definite
]


class BreakdownError(RefusedError):
    """The recurrence met numbers that are not finite and has no solution."""


@dataclass(frozen=True, slots=True)
class SolverReport:
    """How a run of conjugate gradients went.

    residual is ‖b - Ax‖ / ‖b‖ of the solution, by the recurrence. lowest and highest are the
    extreme pᵀAp / pᵀp over the directions searched, the one that stopped it included: lowest <=
    0 is a proof that A is indefinite. ritz are the extreme Ritz values of A, or of M^-1/2 A
    M^-1/2 with a preconditioner M; None before the first iteration. asymmetry is the largest
    |pᵀAp'| / (‖p‖ ‖Ap'‖) of neighbouring directions, while the residual is above 1e-5: rounding
    for a symmetric A, arbitrary if the products are not of one symmetric matrix.
    """

    outcome: Outcome
    iterations: int
    products: int
    residual: float
    residuals: tuple[float, ...]  # after 0, 1, … iterations; residuals[0] is 1
    lowest: float | None
    highest: float | None
    ritz: tuple[float, float] | None
    asymmetry: float

    @property
    def condition(self) -> float | None:
        """A lower bound on the condition number, None if there is none."""
        if self.ritz is None or self.ritz[0] <= 0:
            return None
        return self.ritz[1] / self.ritz[0]


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """x (d,) float64 with A x ≈ b, the best of the Krylov space that was searched."""

    x: torch.Tensor
    report: SolverReport


def solve(
    product: Product,
    right: torch.Tensor,
    *,
    iterations: int,
    tolerance: float = 0.0,
    damping: float = 0.0,
    diagonal: torch.Tensor | None = None,
) -> Solution:
    """Return x ≈ (A + damping·I)⁻¹ b after at most `iterations` products, from x = 0.

    right is b (d,) float64, `diagonal` a preconditioner M > 0 (d,), best near the diagonal of
    A + damping·I. It stops when ‖b - Ax‖ <= tolerance·‖b‖. Negative curvature stops it too,
    with the x found so far: still a descent direction, or zero if the first product met it.
    Besides b and M it holds four vectors (x, r, p, Ap), five with M: memory O(d), not O(kd).
    Raises BreakdownError if b or a product holds NaN or infinity, RefusedError for a
    preconditioner that is not positive or numbers out of range.
    """
    _check(right, iterations, tolerance, damping, diagonal)
    scale = _length(right)
    x = torch.zeros_like(right)
    if scale == 0:
        return Solution(x, SolverReport("converged", 0, 0, 0.0, (0.0,), None, None, None, 0.0))
    r = right / scale  # so that no scalar of the recurrence under- or overflows
    z = r if diagonal is None else r / diagonal
    p = z.clone()
    rz = float(r @ z)
    residuals = [1.0]
    steps: list[float] = []
    turns: list[float] = []
    quotients: list[float] = []
    q = torch.zeros_like(right)
    asymmetry = 0.0
    outcome: Outcome = "iterations"
    while len(residuals) <= iterations:
        if residuals[-1] <= max(tolerance, _ZERO):
            break
        if turns and residuals[-1] > _NOISE:
            asymmetry = max(asymmetry, abs(float(p @ q)) / (float(p.norm()) * float(q.norm())))
        q = product(p)
        if q.shape != p.shape or q.dtype != p.dtype:
            raise BreakdownError(
                "a client returned a product of another shape or type than its vector: "
                "exclude who returned it"
            )
        q = torch.add(q, p, alpha=damping)
        curvature = float(p @ q)
        if not isfinite(curvature):
            raise BreakdownError("a product holds NaN or infinity: exclude who returned it")
        quotients.append(curvature / float(p @ p))
        if curvature <= 0:
            outcome = "negative-curvature"
            break
        step = rz / curvature
        x.add_(p, alpha=step)
        r.sub_(q, alpha=step)
        if diagonal is not None:
            torch.div(r, diagonal, out=z)
        before, rz = rz, float(r @ z)
        residuals.append(float(r.norm()))
        if not (isfinite(rz) and isfinite(residuals[-1])):
            raise BreakdownError("the residual is NaN or infinite: raise damping")
        steps.append(step)
        turns.append(rz / before)
        p.mul_(rz / before).add_(z)
    if residuals[-1] <= max(tolerance, _ZERO):
        outcome = "converged"
    x.mul_(scale)
    return Solution(
        x,
        SolverReport(
            outcome=outcome,
            iterations=len(steps),
            products=len(quotients),
            residual=residuals[-1],
            residuals=tuple(residuals),
            lowest=min(quotients, default=None),
            highest=max(quotients, default=None),
            ritz=_ritz(steps, turns),
            asymmetry=asymmetry,
        ),
    )


def estimate_diagonal(product: Product, size: int, *, probes: int, seed: int) -> torch.Tensor:
    """Return an estimate of diag(A) (d,) float64: the mean of z ⊙ A z over ±1 vectors z.

    Bekas, Kokiopoulou and Saad 2007. Unbiased; exact with one probe if A is diagonal, else
    the variance of entry j is 2 Σ_{k≠j} A_jk² / probes. It needs only products. Raises
    BreakdownError if a product is not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros(size, dtype=torch.float64)
    for _ in range(probes):
        signs = torch.randint(2, (size,), generator=generator).double().mul_(2).sub_(1)
        total += signs * product(signs)
    if not bool(torch.isfinite(total).all()):
        raise BreakdownError("a product holds NaN or infinity: exclude who returned it")
    return total / probes


def preconditioner(diagonal: torch.Tensor, damping: float, power: float = 0.75) -> torch.Tensor:
    """Return (max(d, 0) + damping)^power (d,): Martens 2010, section 4.7, with d for diag(A).

    A power below 1 tolerates a noisy estimate. A negative entry, which can only be noise for
    a positive semidefinite A, counts as zero. Raises RefusedError without damping: an entry
    could vanish.
    """
    if not damping > 0:
        raise RefusedError(
            "damping: must be above 0 with a diagonal preconditioner, or train "
            "with weight_decay"
        )
    return (diagonal.clamp(min=0) + damping) ** power


def _length(vector: torch.Tensor) -> float:
    """Return ‖v‖₂, even if the squares would under- or overflow."""
    largest = float(vector.abs().max())
    return largest * float((vector / largest).norm()) if largest else 0.0


def _ritz(steps: list[float], turns: list[float]) -> tuple[float, float] | None:
    """Return the extreme eigenvalues of the Lanczos matrix of the recurrence's scalars."""
    if not steps:
        return None
    matrix = np.diag([1 / step for step in steps])
    for j in range(1, len(steps)):
        matrix[j, j] += turns[j - 1] / steps[j - 1]
        matrix[j, j - 1] = matrix[j - 1, j] = sqrt(turns[j - 1]) / steps[j - 1]
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]), float(values[-1])


def _check(
    right: torch.Tensor,
    iterations: int,
    tolerance: float,
    damping: float,
    diagonal: torch.Tensor | None,
) -> None:
    if right.ndim != 1 or right.dtype != torch.float64:
        raise RefusedError("the right side must be one float64 vector")
    if not bool(torch.isfinite(right).all()):
        raise BreakdownError(
            "a client returned a gradient with NaN or infinity: exclude who returned it"
        )
    if iterations < 1 or not 0 <= tolerance < 1 or not 0 <= damping < float("inf"):
        raise RefusedError(
            "iterations must be at least 1, tolerance at least 0 and below 1, and "
            "damping 0 or more"
        )
    if diagonal is not None and (
        diagonal.shape != right.shape
        or diagonal.dtype != right.dtype
        or not bool((diagonal > 0).all())
        or not bool(torch.isfinite(diagonal).all())
    ):
        raise RefusedError(
            "the preconditioner must have one positive finite number for each "
            "entry of the right side"
        )
