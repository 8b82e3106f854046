"""The corrected step of HF-KCU: which form it takes, its right side, the solve, the bound.

With n - m retained rows and m rows to forget, A over the retained rows, and mean gradients
per row:

    influence    A x = g_F, Δ = (m / (n - m)) x       newton    A x = -g_R, Δ = x

At an optimum m g_F + (n - m) g_R = 0, and both are equal. The paper's Δ = -w H⁻¹ g is
neither.

Away from it they differ. Newton goes to the retained optimum and trains on the way. Influence
only removes what the targets contributed: it keeps the distance to the optimum, which a model
retrained as long would have too. The drift measures that distance.
"""

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Literal

import torch

from workers.errors import RefusedError
from workers.methods.network.base import TargetError, UnlearningCase, UnmetNeedError
from workers.methods.network.hf_kcu.bounds import Stability, stability
from workers.methods.network.hf_kcu.conjugate_gradients import (
    Solution,
    SolverReport,
    estimate_diagonal,
    preconditioner,
    solve,
)
from workers.methods.network.hf_kcu.products import Asking, Panel, PanelChangedError
from workers.methods.network.hf_kcu.settings import Settings, causal_weights
from workers.training.fedavg.base import Fault, Work
from workers.training.fedavg.seeds import stream
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.weights import to_vector

ASYMMETRY = 0.05  # float32 products of one matrix stay below 1e-3, random answers reach 0.5

Form = Literal["influence", "newton"]


class CurvatureError(RefusedError):
    """The products of the retained clients are not those of a positive definite matrix."""


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """The step before the guard: Δ (d,) float64, and how it was found.

    drift is ‖Σ all gradients‖ / ‖Σ gradients to forget‖, small for a converged model, None if
    not measured. faults name clients: they are for the operator, not for notes.
    """

    delta: torch.Tensor
    form: Form | Literal["as-printed"]
    why: str
    drift: float | None
    report: SolverReport
    bound: Stability
    scaling: float  # factor of the adaptive scaling
    panel: int  # clients in the final curvature panel
    restarts: int
    faults: tuple[Fault, ...]
    work: Work

    def notes(self) -> dict[str, str]:
        """Return the notes for a certificate."""
        report, bound = self.report, self.bound
        found = {
            "hf-kcu.form": self.form,
            "hf-kcu.why": self.why,
            "hf-kcu.scaling": f"{self.scaling:.6g}",
            "hf-kcu.clients": str(self.panel),
            "cg.outcome": report.outcome,
            "cg.iterations": str(report.iterations),
            "cg.products": str(report.products),
            "cg.residual": f"{report.residual:.6g}",
            "cg.asymmetry": f"{report.asymmetry:.3g}",
            "bound.floor": f"{bound.floor:.6g}",
            "bound.floor-is": "proven" if bound.floor_proven else "estimated",
            "bound.adversarial": f"{bound.adversarial:.6g}",
            "bound.solver": f"{bound.solver:.6g}",
            "bound.total": f"{bound.total:.6g}",
        }
        if self.drift is not None:
            found["hf-kcu.drift"] = f"{self.drift:.6g}"
        if report.lowest is not None and report.highest is not None:
            found["cg.curvature"] = f"{report.lowest:.6g} to {report.highest:.6g}"
        if report.condition is not None:
            found["cg.condition-at-least"] = f"{report.condition:.6g}"
        if self.restarts:
            found["cg.restarts"] = str(self.restarts)
        if self.faults:
            reasons = sorted({fault.reason for fault in self.faults})
            found["hf-kcu.dropped"] = f"{len(self.faults)} ({', '.join(reasons)})"
        return found


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


def drift(retained: torch.Tensor, rows: int, leaving: Leaving) -> float:
    """Return ‖(n-m) g_R + m g_F‖ / ‖m g_F‖: 0 at an optimum, relative to what is removed.

    Below 1 the two forms point to the same side. Infinite if only the rows to forget have no
    gradient, 0 if no rows have one.
    """
    gone = leaving.rows * leaving.gradient
    above, below = float((rows * retained + gone).norm()), float(gone.norm())
    if below == 0:
        return 0.0 if above == 0 else inf
    return above / below


def newton(retained: torch.Tensor, why: str, found: float | None = None) -> Equation:
    """Return the full Newton step of the retained clients, without the targets."""
    return Equation("newton", why, -retained, 1.0, found)


def influence(leaving: Leaving, rows: int, why: str, found: float | None) -> Equation:
    """Return the step for a converged model: the targets' gradient, the retained curvature."""
    return Equation("influence", why, leaving.weighted, leaving.rows / rows, found)


def choose(
    retained: torch.Tensor, rows: int, leaving: Leaving, limit: float | None
) -> Equation:
    """Return `influence` if the drift is at most the limit (None: finite), else `newton`.

    Without any gradient of the rows to forget there is nothing for influence to remove.
    """
    found = drift(retained, rows, leaving)
    if limit is None:
        if isfinite(found):
            return influence(leaving, rows, "the targets answered", found)
        return newton(retained, "the rows to forget have no gradient", found)
    if found <= limit:
        return influence(leaving, rows, f"drift at most {limit:.3g}", found)
    return newton(retained, f"not converged: drift above {limit:.3g}", found)


def corrected(case: UnlearningCase, settings: Settings, asking: Asking) -> Direction:
    """Return Δ of either form, before adaptive scaling.

    Raises NobodyAnsweredError, UnmetNeedError, TargetError, CurvatureError, BreakdownError.
    """
    penalty, theta = penalty_of(case), to_vector(case.weights).double()
    rows = sum(case.retained.rows.values())
    skip = settings.drift == "skip"
    answers = {} if skip else asking.gradients(case.retained)
    least = max(1.0, settings.least_share * rows)
    panel = Panel(
        asking,
        case.retained,
        sorted(case.retained.rows if skip else answers),
        settings.product,
        penalty,
        least,
        settings.curvature_rows,
    )
    panel.check()
    leaving = _leaving(case, settings, asking, penalty * theta)
    if skip:
        assert isinstance(leaving, Leaving)  # of the form influence
        equation = influence(leaving, rows, "asked for", None)
    else:
        retained = to_vector(weighted_mean(answers)) + penalty * theta
        equation = _equation(settings, retained, rows, leaving)
    right, scale = equation.right, equation.scale
    panel = _chosen(panel, settings)
    solution, restarts = solve_on(panel, right, settings)
    return Direction(
        delta=scale * solution.x,
        form=equation.form,
        why=equation.why,
        drift=equation.drift,
        report=solution.report,
        bound=bound_of(case, settings, solution.report, float(right.norm()), penalty, scale),
        scaling=1.0,
        panel=len(panel.clients),
        restarts=restarts,
        faults=tuple(asking.faults),
        work=asking.work,
    )


def _equation(
    settings: Settings, retained: torch.Tensor, rows: int, leaving: Leaving | str
) -> Equation:
    if isinstance(leaving, str):
        return newton(retained, leaving)
    if settings.form == "influence":
        return influence(leaving, rows, "asked for", drift(retained, rows, leaving))
    return choose(retained, rows, leaving, settings.newton_above)


def penalty_of(case: UnlearningCase) -> float:
    """Return λ of the (λ/2)‖θ‖² in each row's loss: the weight decay of sgd and adam.

    adamw decouples its decay from the loss: its fixed point minimises no such loss.
    """
    local = case.config.local
    return 0.0 if local.optimizer == "adamw" else local.weight_decay


def solve_on(panel: Panel, right: torch.Tensor, settings: Settings) -> tuple[Solution, int]:
    """Return (A + damping)⁻¹ b by the panel's products, and the number of restarts.

    Raises CurvatureError, BreakdownError and NobodyAnsweredError.
    """
    restarts = 0
    while True:
        try:
            diagonal = None
            if settings.preconditioner == "diagonal":
                found = estimate_diagonal(
                    panel.times, len(right), probes=settings.probes, seed=panel.asking.seed
                )
                diagonal = preconditioner(found, settings.damping + panel.penalty)
            solution = solve(
                panel.times,
                right,
                iterations=settings.iterations,
                tolerance=settings.tolerance,
                damping=settings.damping,
                diagonal=diagonal,
            )
            break
        except PanelChangedError:
            restarts += 1  # ends: each restart drops at least one client
    _check(solution.report, settings)
    return solution, restarts


def bound_of(
    case: UnlearningCase,
    settings: Settings,
    report: SolverReport,
    gradient: float,
    penalty: float,
    scale: float,
) -> Stability:
    """Return the bounds of Theorem 1 and corollary 2, the floor proven if possible.

    A Gauss-Newton matrix has no negative eigenvalue, nor has the Hessian of a loss that is
    convex in the weights: damping and weight decay are a floor then, up to the rounding of
    the products. Otherwise, or without either, the smallest curvature seen serves as the
    floor.
    """
    convex = settings.product == "gauss-newton" or (
        case.network.id == "logistic" and case.config.local.loss == "cross-entropy"
    )
    floor = settings.damping + penalty
    proven = convex and floor > 0
    if not proven:
        seen = [report.lowest if report.lowest is not None else inf]
        if report.ritz is not None and settings.preconditioner == "none":
            seen.append(report.ritz[0])
        floor = min(seen)
    return stability(
        floor=floor,
        floor_proven=proven,
        gradient=gradient,
        residual=report.residual,
        epsilon=settings.epsilon,
        rho=settings.rho,
        scale=scale,
    )


def _leaving(
    case: UnlearningCase, settings: Settings, asking: Asking, decay: torch.Tensor
) -> Leaving | str:
    """Return the targets' gradients, or the reason for a step without them."""
    if settings.form == "newton":
        return "asked for"
    must = settings.form == "influence"
    if case.targets is None:
        if must:
            raise UnmetNeedError(f"a target client is offline: {settings.without_targets()}")
        return "a target is offline"
    answers = asking.gradients(case.targets)
    if len(answers) < len(case.targets.rows):
        if must:
            remedy = settings.without_targets()
            raise TargetError(f"a target client did not answer usably: {remedy}")
        return "a target did not answer usably"
    rows = {client: update.samples for client, update in answers.items()}
    parts = {client: to_vector(u.delta).double() + decay for client, u in answers.items()}
    norms = {client: float(part.norm()) for client, part in parts.items()}
    weights = causal_weights(settings.causal, rows, norms)
    weighted = torch.stack([weights[client] * parts[client] for client in parts]).sum(0)
    mean = to_vector(weighted_mean(answers)) + decay
    return Leaving(sum(rows.values()), mean, weighted)


def _chosen(panel: Panel, settings: Settings) -> Panel:
    """Return the panel whose curvature is used: all clients, or a sample drawn by seed."""
    if not 0 < settings.curvature_clients < len(panel.clients):
        return panel
    rng = stream(panel.asking.seed, "curvature")
    chosen = rng.choice(panel.clients, settings.curvature_clients, replace=False)
    clients = sorted(str(name) for name in chosen)
    least = settings.least_share * sum(panel.side.rows[name] for name in clients)
    return replace(panel, clients=clients, least=max(1.0, least))


def _check(report: SolverReport, settings: Settings) -> None:
    if report.asymmetry > ASYMMETRY:
        raise CurvatureError(
            f"the products are not those of one matrix (asymmetry {report.asymmetry:.2g}): a "
            f"client answers at random or its rows change; find and exclude it, or retrain"
        )
    if report.outcome != "negative-curvature":
        return
    if report.iterations == 0 or settings.indefinite == "refuse":
        assert report.lowest is not None
        raise CurvatureError(
            f"the matrix is not positive definite (curvature {report.lowest:.3g}): use the "
            f"product gauss-newton, or a damping above {settings.damping - report.lowest:.3g}"
        )
