"""Which linear system the step solves: the corrected sign and scale, on plain vectors.

With n - m rows that stay and m that go, A over those that stay, and mean gradients per row:

    influence    A x = g_F, Δ = (m / (n - m)) x       newton    A x = -g_R, Δ = x

At an optimum m g_F + (n - m) g_R = 0, and both are one. The paper's Δ = -w H⁻¹ g is neither.

Off it they differ. Newton goes to the optimum of those who stay, and trains on the way.
Influence only takes out what the others put in: it keeps the distance to the optimum, which
a model retrained as long would have, too. How far off is told by the drift.
"""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

import torch

Form = Literal["influence", "newton"]


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """A x = right, Δ = scale · x; why this form; drift as `drift` says, None if unknown."""

    form: Form
    why: str
    right: torch.Tensor  # (d,) float64
    scale: float
    drift: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Leaving:
    """The rows that go: their number m, mean gradient, and the causally weighted one."""

    rows: int
    gradient: torch.Tensor
    weighted: torch.Tensor


def drift(stay: torch.Tensor, rows: int, leaving: Leaving) -> float:
    """Return ‖(n-m) g_R + m g_F‖ / ‖m g_F‖: 0 at an optimum, by the size of what is removed.

    Below 1 the two forms point to one side. Infinite where only the rows that go have no
    gradient, 0 where nobody has.
    """
    gone = leaving.rows * leaving.gradient
    above, below = float((rows * stay + gone).norm()), float(gone.norm())
    if below == 0:
        return 0.0 if above == 0 else inf
    return above / below


def newton(stay: torch.Tensor, why: str, found: float | None = None) -> Equation:
    """Return the full Newton step of those who stay; whoever leaves is not in it."""
    return Equation("newton", why, -stay, 1.0, found)


def influence(leaving: Leaving, rows: int, why: str, found: float | None) -> Equation:
    """Return the step for a converged model: from those who leave, over those who stay."""
    return Equation("influence", why, leaving.weighted, leaving.rows / rows, found)


def choose(stay: torch.Tensor, rows: int, leaving: Leaving, limit: float | None) -> Equation:
    """Return `influence` if the drift is at most the limit (None: finite), else `newton`.

    Without any gradient of the rows that go there is nothing for influence to take out.
    """
    found = drift(stay, rows, leaving)
    if limit is None:
        if isfinite(found):
            return influence(leaving, rows, "the targets answered", found)
        return newton(stay, "the rows that go have no gradient", found)
    if found <= limit:
        return influence(leaving, rows, f"drift at most {limit:.3g}", found)
    return newton(stay, f"not converged: drift above {limit:.3g}", found)
