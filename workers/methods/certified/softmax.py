"""How fast the derivatives of multinomial cross-entropy can change: constants with proofs.

With p = softmax(z), J a class drawn from p and v a direction in the logits, the second and
third derivatives of log Σ exp z along v are the variance and the third central moment of v_J.
For ‖v‖₂ = 1 the values v_j lie within a range of √2, since (v_i - v_j)² <= 2.

Second: a variance is at most range²/4 = 1/2 (Popoviciu). So ‖softmax(z) - softmax(z')‖₂ <=
½‖z - z'‖₂, and the Hessian in the logits has no eigenvalue above 1/2.

Third: given its mean, a third central moment is largest for a law on two points (a linear
programme with one constraint), where it is g³q(1-q)(1-2q) <= g³/(6√3) for a gap g <= √2: in
all √2/(3√3), attained in the limit by two classes. For a symmetric trilinear form the largest
value on the diagonal is its norm (Banach 1938), so that this bounds ‖∇²(z) - ∇²(z')‖₂ / ‖z -
z'‖₂. The constant 1/4 of Guo et al. 2020 holds for the scalar logistic loss only.

Logits are z = Wx + b = Θ(1, x), and ‖Θ(1, x)‖₂ <= ‖Θ‖_F ‖(1, x)‖₂: each derivative in the
weights has one more factor ‖(1, x)‖.
"""

from math import sqrt

CURVATURE = 0.5
TWIST = sqrt(2) / (3 * sqrt(3))
SLOPE = sqrt(2)  # of a row's loss: ‖p - e_y‖₂ <= √2


def hessian_lipschitz(row_norm: float) -> float:
    """Return γ with ‖∇²ℓ(θ) - ∇²ℓ(θ')‖₂ <= γ‖θ - θ'‖₂, ℓ a mean of such rows."""
    return TWIST * row_norm**3


def newton_residual(
    row_norm: float, gradient: float, step: float, solve: float, share: float = 1.0
) -> float:
    """Return a bound of ‖∇L(θ + tΔ)‖ for t = share, without asking clients.

    gradient is ‖∇L(θ)‖, step ‖Δ‖ and solve ‖∇²L(θ)Δ + ∇L(θ)‖. By Taylor's formula the
    gradient there is (1 - t)∇L + t(∇²L Δ + ∇L) plus a remainder of at most γt²‖Δ‖²/2: the
    argument of Guo et al. 2020, Theorem 1, with the constant of several classes.
    """
    rest = hessian_lipschitz(row_norm) / 2 * (share * step) ** 2
    return (1 - share) * gradient + share * solve + rest
