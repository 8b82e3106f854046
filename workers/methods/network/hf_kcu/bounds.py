"""How far bounded poisoning can move the step: HF-KCU, Theorem 1 and corollary 2.

These bound the distance to the step that clean answers would have given. They do not show
that a step forgets: that is measured. HF-KCU's Theorem 7 (a bound in total variation) is left
out, because without noise the outputs are point masses, whose total variation is 1.
"""

from dataclasses import dataclass
from math import inf, isfinite

from workers.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Stability:
    """A bound on ‖δ̂ - δ*‖₂, from the step taken to the exact step of clean answers.

    floor is the μ used, a lower bound of the smallest eigenvalue of the damped matrix as
    answered; floor_proven tells whether it follows from damping and a matrix that cannot have
    negative eigenvalues. If not, it is a Ritz value, which is never below the true
    eigenvalue: the bound is then an estimate. Infinite for epsilon >= μ, where Theorem 1 says
    nothing.
    """

    floor: float
    floor_proven: bool
    epsilon: float  # assumed ‖E‖₂: how far poison moved the matrix
    rho: float  # assumed ‖e‖₂: how far it moved the right side
    adversarial: float  # ε‖g‖ / (μ(μ-ε)) + ρ / (μ-ε), times the step's scale
    solver: float  # ξ: the residual over μ, times the step's scale

    @property
    def total(self) -> float:
        """Corollary 2: the sum of both."""
        return self.adversarial + self.solver


def stability(
    *,
    floor: float,
    floor_proven: bool,
    gradient: float,
    residual: float,
    epsilon: float = 0.0,
    rho: float = 0.0,
    scale: float = 1.0,
) -> Stability:
    """Return the bound of Theorem 1 and corollary 2 for a step scale · A⁻¹ g.

    gradient is ‖g‖ and residual ‖g - Ax‖ / ‖g‖, both as observed. The paper states Theorem 1
    for the clean pair, which is unknown. The distance between the pairs is symmetric, so the
    same inequality holds with the observed ‖g‖ and μ. ξ = ‖A⁻¹(g - Ax)‖ <= ‖g - Ax‖ / μ.
    Raises RefusedError for a negative number or NaN.
    """
    given = (gradient, residual, epsilon, rho, scale)
    if not all(isfinite(number) and number >= 0 for number in given):
        raise RefusedError("the stability bound needs finite numbers that are not negative")
    if not (floor > 0 and isfinite(floor)):
        return Stability(floor, False, epsilon, rho, inf, inf)
    adversarial = inf
    if epsilon < floor:
        turned = epsilon / (floor * (floor - epsilon)) * gradient
        adversarial = scale * (turned + rho / (floor - epsilon))
    solver = scale * residual * gradient / floor
    return Stability(floor, floor_proven, epsilon, rho, adversarial, solver)
