"""HF-KCU's Algorithm 1 as it is printed: an ablation, worse than doing nothing.

Each affected client solves with its own Hessian, (H_i + λI) v_i = g_i; the server adds Δ = -Σ
w_i α_i scale_i v_i, w_i = n_i/n. At an optimum that points away from the retrained model: the
sign is wrong, the factor is m/n in place of m/(n-m), and the Hessian that of the rows to
forget in place of the retained rows.
"""

import torch

from workers.errors import RefusedError
from workers.methods.network.base import TargetError, UnlearningCase
from workers.methods.network.hf_kcu.conjugate_gradients import SolverReport
from workers.methods.network.hf_kcu.direction import Direction, bound_of, solve_on
from workers.methods.network.hf_kcu.products import Asking, Panel
from workers.methods.network.hf_kcu.settings import Settings, causal_weights
from workers.training.networks.weights import norm, to_vector


def as_printed(case: UnlearningCase, settings: Settings, asking: Asking) -> Direction:
    """Return Δ of Algorithm 1, adaptive scaling (line 17) included; one report, the worst.

    Raises RefusedError for a request by rows, TargetError if a target does not answer, and
    as `solve_on`.
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
