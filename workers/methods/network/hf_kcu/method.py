"""HF-KCU, corrected: one Newton step to the retained optimum, by conjugate gradients.

Source: "Causal Unlearning in Collaborative Optimization" (arXiv 2605.20341). Its step
Δ = -w H⁻¹ g has the wrong sign and scale: at an optimum the gradients sum to zero, and taking
m of n rows away moves it by

    Δ = +(m / (n - m)) H_R⁻¹ g_F          "influence", where the model is near an optimum
    Δ = -H_R⁻¹ g_R                        "newton", where it is not: a full Newton step

with H_R over the retained rows and g_F, g_R the mean gradients of the rows to forget and to
retain. Both are equal at an optimum, and exact where the loss is quadratic. The second needs
neither the target clients nor their curvature. Weight decay counts as the part (λ/2)‖θ‖² of
each row's loss. `variant="as-printed"` is the paper's Algorithm 1, an ablation.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    TargetError,
    Unlearned,
    UnlearningCase,
    check_needs,
    method,
)
from workers.methods.network.cycles import Cycles, step_in_cycles
from workers.methods.network.guard import Ceiling, along, take_step
from workers.methods.network.hf_kcu.conjugate_gradients import SolverReport
from workers.methods.network.hf_kcu.direction import Direction, bound_of, corrected, solve_on
from workers.methods.network.hf_kcu.products import Asking, Panel
from workers.methods.network.hf_kcu.settings import Settings, causal_weights
from workers.methods.network.recovery import Step
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import from_vector, norm, to_vector

CONVERGED = 0.1  # drift up to which both forms agree and η = 1 is the refit
SEARCH_FROM = 0.25  # of ‖θ‖


@method("hf-kcu")
@dataclass(frozen=True, slots=True)
class HfKcu(Settings):
    """HF-KCU; its settings are those of `Settings`."""

    id: ClassVar[str] = "hf-kcu"
    version: ClassVar[str] = "2"

    @property
    def needs(self) -> frozenset[Need]:
        """Validation rows where the step is guarded, the targets where the form asks them."""
        found: set[Need] = set() if self.guard is None else {"validation"}
        if self.variant == "as-printed":
            found.add("targets")
        if self.guard is not None and self.guard.forget is not None:
            found.add("targets")
        return frozenset(found)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after the step and recovery.

        Raises UnmetNeedError, TargetError, NobodyAnsweredError, CurvatureError,
        BreakdownError, NoSafeStepError, DivergedError; the model is then unchanged.
        """
        offline = f"a target client is offline: {self.without_targets()}"
        check_needs(self.needs, case, {"targets": offline})
        spelled = f"{self.id}/{self.version} {self!r}"
        cycles = Cycles(self.cycles, self.guard, self.recovery)
        return step_in_cycles(case, spelled, self._step, cycles, hooks)

    def direction(self, case: UnlearningCase) -> Direction:
        """Return Δ and its report without taking the step. Raises as `run`."""
        asking = Asking(
            case.network,
            case.weights,
            case.config.local,
            derive(case.config.seed, self.id, case.config.rounds),
            case.config.timeout,
            self.max_norm,
        )
        if self.variant == "as-printed":
            return as_printed(case, self, asking)
        found = corrected(case, self, asking)
        size = float(to_vector(case.weights).double().norm())
        length = float(found.delta.norm())
        if self.scaling is not None and length > self.scaling * size:
            kept = self.scaling * size / length
            found = replace(found, delta=kept * found.delta, scaling=kept)
        return found

    def asked(self, case: UnlearningCase, found: Direction) -> float:
        """Return the η of the step or, with a guard, the first to try.

        1 by default: the whole of Δ. Away from an optimum only the direction of the influence
        step is reliable: where a network has memorised the rows to forget, their gradient
        nearly vanishes, and Δ with it. A guarded search then starts at a quarter of the
        weights' norm, or at β of it if scaling caps the step, and the retained loss decides
        how much is safe.
        """
        if self.step is not None:
            return self.step
        near = found.drift is not None and found.drift <= CONVERGED
        length = float(found.delta.norm())
        if self.guard is None or found.form != "influence" or near or length == 0:
            return 1.0
        size = float(to_vector(case.weights).double().norm())
        share = SEARCH_FROM if self.scaling is None else min(SEARCH_FROM, self.scaling)
        return max(1.0, share * size / length)

    def _step(self, case: UnlearningCase, ceiling: Ceiling | None) -> Step:
        found = self.direction(case)
        stepped = take_step(
            along(case.weights, from_vector(found.delta, case.network)),
            self.asked(case, found),
            judge=case.validation,
            guard=self.guard,
            ceiling=ceiling,
        )
        notes = {
            "hf-kcu.variant": self.variant,
            "hf-kcu.product": self.product,
            "hf-kcu.damping": f"{self.damping:.6g}",
            "hf-kcu.causal": self.causal,
            "hf-kcu.curvature-rows": f"{self.curvature_rows:.6g}",
            **found.notes(),
            **stepped.notes(),
        }
        return Step(stepped.weights, found.work + stepped.work, notes)


def as_printed(case: UnlearningCase, settings: Settings, asking: Asking) -> Direction:
    """Return Δ of Algorithm 1 as printed: an ablation, worse than doing nothing.

    Each affected client solves with its own Hessian, (H_i + λI) v_i = g_i; the server adds Δ
    = -Σ w_i α_i scale_i v_i, w_i = n_i/n, with the adaptive scaling of line 17. At an optimum
    that points away from the retrained model: the sign is wrong, the factor is m/n in place
    of m/(n-m), and the Hessian that of the rows to forget in place of the retained rows. The
    report is the worst client's. Raises RefusedError for a request by rows, TargetError if a
    target does not answer, and as `solve_on`.
    """
    if case.targets is None or case.request.rows:
        raise RefusedError("as-printed: needs the targets, and forgets whole clients only")
    leaving = asking.gradients(case.targets)
    if len(leaving) < len(case.targets.rows):
        remedy = settings.without_targets()
        raise TargetError(f"a target client did not answer usably: {remedy}")
    rows = {client: update.samples for client, update in leaving.items()}
    alpha = causal_weights(
        settings.causal, rows, {c: norm(update.delta) for c, update in leaving.items()}
    )
    total = sum(rows.values()) + sum(case.retained.rows.values())
    size = float(to_vector(case.weights).double().norm())
    delta = torch.zeros(len(to_vector(case.weights)), dtype=torch.float64)
    kept, worst, gradient = 1.0, None, 0.0
    for client in sorted(leaving):
        right = to_vector(leaving[client].delta).double()
        panel = Panel(
            asking,
            case.targets,
            [client],
            settings.product,
            0.0,
            share=settings.curvature_rows,
        )
        solution, _ = solve_on(panel, right, settings)
        length, scale = float(solution.x.norm()), 1.0
        if settings.scaling is not None and length > settings.scaling * size:
            scale = settings.scaling * size / length
        delta -= rows[client] / total * alpha[client] * scale * solution.x
        kept, gradient = min(kept, scale), max(gradient, float(right.norm()))
        if worst is None or solution.report.residual > worst.residual:
            worst = solution.report
    assert isinstance(worst, SolverReport)
    return Direction(
        delta=delta,
        form="as-printed",
        why="asked for: an ablation",
        drift=None,
        report=worst,
        bound=bound_of(case, settings, worst, gradient, 0.0, sum(rows.values()) / total),
        scaling=kept,
        panel=len(leaving),
        restarts=0,
        faults=tuple(asking.faults),
        work=asking.work,
    )
