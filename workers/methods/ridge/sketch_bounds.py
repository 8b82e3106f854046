"""How far sketched Gram matrices can move the head: theorem A2.1, for streams and deletes.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
appendix A2.1. Write B = G + λI and B̃ = G̃ + λI for exact and sketched Gram matrices in
feature units, W = B⁻¹C, W̃ = B̃⁻¹C for the exact moment C, E = G̃ - G and ‖E‖₂ <= δ, the
drift: the sum of ‖ΔG - ΔĜ‖₂ over all sketches, added or deleted, since G̃ was G. As G comes
from rows, B ⪰ λI. From B̃W̃ = C = BW,

    W̃ - W = -B⁻¹EW̃ = -B̃⁻¹EW                                                        (1)

(a) ‖W̃ - W‖_F <= δ‖W̃‖_F / λ, whenever B̃ is regular: no assumption on δ.
(b) If B̃ ⪰ μI for a μ > 0: ‖W̃ - W‖_F <= δ‖W‖_F / μ <= δ‖C‖_F / (λμ).

What remains is μ. By Weyl's inequality μ = λ - δ always works: with it (b) is the theorem's
second form, which for that reason needs ‖ΔG - ΔĜ‖₂ < λ, and holds for a delete as it stands.

Add. ΔĜ is SᵀS/4^s rounded to integers, so ΔĜ ⪰ -ρI with ρ = Σ_j 4^e_j / 2, the Frobenius
norm of all roundings by 1/2. Hence B̃ ⪰ B̃_before - ρI ⪰ (λ - δ_before - ρ)I: what the new
sketch neglects does not endanger feasibility, and from an exact state (δ_before = 0) the
assumption ‖ΔG - ΔĜ‖₂ < λ of the theorem can be dropped.

Delete. B̃ = B̃_before - ΔĜ, and a sketch may stand for more than ΔG in some direction: only
G̃ ⪰ G - δI, hence μ = λ - δ with the new sketch in δ. Feasibility is guaranteed for δ < λ.

Where rows were never seen, only their sketches, G itself is within the attested α of the
Gram matrix of the rows: δ + α takes the place of δ throughout, for W of the rows.
"""

from collections.abc import Sequence
from math import inf, isfinite, ldexp, nextafter

import numpy as np

from workers.arrays import IntMatrix, Matrix

# Covers the roundings here: norms of up to 2^26 numbers, and a few operations.
SLACK = 1 + 2.0**-24


def least_eigenvalue(
    sign: int, before: float, after: float, penalty: float, exponents: Sequence[int]
) -> float:
    """Return μ with G̃ + λI ⪰ μI after a sketch was added (sign +1) or deleted (-1).

    before and after: the total drift (attested part included) before and after it. Nothing is
    guaranteed where the result is not positive.
    """
    if sign < 0:
        return nextafter(penalty - after, -inf)
    rounding = sum(ldexp(0.5, 2 * step) for step in exponents) * SLACK
    return nextafter(penalty - min(after, (before + rounding) * SLACK), -inf)


def prior_bound(drift: float, penalty: float, least: float, moment_norm: float) -> float:
    """Return (b), δ‖C‖_F / (λμ): the bound known before the head is solved for.

    inf where feasibility is not guaranteed (least = μ <= 0) or float64 ends.
    """
    if drift == 0:
        return 0.0
    if least <= 0:
        return inf
    bound = drift / penalty * SLACK * (moment_norm / least) * SLACK
    return bound if isfinite(bound) else inf


def resolvent_bound(drift: float, penalty: float, head_norm: float) -> float:
    """Return (a), δ‖W̃‖_F / λ: how far the sketches can have moved a head W̃."""
    return drift / penalty * head_norm * SLACK


def moment_norm(moment: IntMatrix, exponents: Sequence[int]) -> float:
    """Return a number no less than ‖C‖_F in feature units."""
    return norm_above(np.ldexp(moment.astype(np.float64), np.array(exponents)[:, None]))


def norm_above(matrix: Matrix) -> float:
    """Return a number no less than the Frobenius norm of finite numbers."""
    peak = float(np.abs(matrix).max(initial=0.0))
    if peak == 0:
        return 0.0
    return peak * float(np.sqrt(np.square(matrix / peak).sum())) * SLACK
