"""Which linear system the step solves: the corrected sign and scale, on plain vectors.

With n - m retained rows and m rows to forget, A over the retained rows, and mean gradients
per row:

    influence    A x = g_F, Δ = (m / (n - m)) x       newton    A x = -g_R, Δ = x

At an optimum m g_F + (n - m) g_R = 0, and both are equal. The paper's Δ = -w H⁻¹ g is
neither.

Away from it they differ. Newton goes to the retained optimum and trains on the way. Influence
only removes what the targets contributed: it keeps the distance to the optimum, which a model
retrained as long would have too. The drift measures that distance.
"""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

import torch

Form = Literal["influence", "newton"]


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """A x = right, Δ = scale · x; the reason for this form; the `drift`, None if unknown."""

    form: Form
    why: str
    right: torch.Tensor  # (d,) float64
    scale: float
    drift: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Leaving:
    """The rows to forget: their number m, mean gradient, and the causally weighted one."""

    rows: int
    gradient: torch.Tensor
    weighted: torch.Tensor


def drift(stay: torch.Tensor, rows: int, leaving: Leaving) -> float:
    """Return ‖(n-m) g_R + m g_F‖ / ‖m g_F‖: 0 at an optimum, relative to what is removed.

    Below 1 the two forms point to the same side. Infinite if only the rows to forget have no
    gradient, 0 if no rows have one.
    """
    gone = leaving.rows * leaving.gradient
    above, below = float((rows * stay + gone).norm()), float(gone.norm())
    if below == 0:
        return 0.0 if above == 0 else inf
    return above / below


def newton(stay: torch.Tensor, why: str, found: float | None = None) -> Equation:
    """Return the full Newton step of the retained clients, without the targets."""
    return Equation("newton", why, -stay, 1.0, found)


def influence(leaving: Leaving, rows: int, why: str, found: float | None) -> Equation:
    """Return the step for a converged model: the targets' gradient, the retained curvature."""
    return Equation("influence", why, leaving.weighted, leaving.rows / rows, found)


def choose(stay: torch.Tensor, rows: int, leaving: Leaving, limit: float | None) -> Equation:
    """Return `influence` if the drift is at most the limit (None: finite), else `newton`.

    Without any gradient of the rows to forget there is nothing for influence to remove.
    """
    found = drift(stay, rows, leaving)
    if limit is None:
        if isfinite(found):
            return influence(leaving, rows, "the targets answered", found)
        return newton(stay, "the rows that go have no gradient", found)
    if found <= limit:
        return influence(leaving, rows, f"drift at most {limit:.3g}", found)
    return newton(stay, f"not converged: drift above {limit:.3g}", found)
