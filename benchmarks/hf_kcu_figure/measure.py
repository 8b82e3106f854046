"""Runs of the solver on the equation of HF-KCU's corrected step, at chosen condition numbers.

A is the Gauss-Newton matrix of those who stay at the trained model, b the mean gradient of the
rows that go. A has no negative eigenvalue, so A + δI has the condition number (λ + δ) / δ at
most, λ being A's largest eigenvalue; where the network has more weights than A has rank, it is
exactly this. So δ chooses the condition number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log, sqrt

import torch

from benchmarks.unlearning.task import Task
from workers.methods.network.base import UnlearningCase, UnlearningRequest
from workers.methods.network.hf_kcu.conjugate_gradients import (
    Product,
    SolverReport,
    estimate_diagonal,
    preconditioner,
    solve,
)
from workers.methods.network.hf_kcu.direction import penalty_of
from workers.methods.network.hf_kcu.products import Asking, Panel
from workers.methods.network.local_case import local_case
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.weights import Weights, to_vector

DAMPING = 0.01  # the paper's
SHOWN = 50  # iterations of the left panel, as in the paper
TOLERANCE = 1e-4  # what the paper counts as converged
CONDITIONS = (1e1, 1e2, 1e3, 1e4, 1e5)
CAP = 2000  # iterations
LANCZOS = 40  # iterations that tell the largest eigenvalue
PROBES = 20  # products that estimate the diagonal of A


@dataclass(frozen=True, slots=True)
class Run:
    """One solve for client 1 or 2, the largest and the second largest.

    damping is δ, condition (λ + δ) / δ. residuals are ‖b - Ax‖ / ‖b‖ after 0, 1, … iterations,
    to the SHOWNth where `shown`, else to the first that is below TOLERANCE; with a
    preconditioner they are of the same b - Ax.
    """

    setting: str
    seed: int
    client: int
    preconditioned: bool
    shown: bool
    damping: float
    condition: float
    outcome: str
    residuals: tuple[float, ...]


def guaranteed(condition: float, iteration: int) -> float:
    """Return what ‖b - Ax‖ / ‖b‖ is at most: 2 √κ ((√κ - 1) / (√κ + 1))^t.

    The paper's theorem bounds the energy norm of the error, 2 ((√κ - 1) / (√κ + 1))^t of
    that at the start; of residuals it is at most √κ times as much.
    """
    root = sqrt(condition)
    return float(2 * root * ((root - 1) / (root + 1)) ** iteration)


def needed(condition: float, tolerance: float = TOLERANCE) -> int:
    """Return the iterations after which `guaranteed` is below a tolerance: O(√κ log κ)."""
    root = sqrt(condition)
    rate = log((root + 1) / (root - 1))
    return 1 + int(log(2 * root / tolerance) / rate)


def measure(
    task: Task, conditions: Sequence[float], tell: Callable[[str], None]
) -> Iterator[Run]:
    """Yield the runs of one seed: train once, then let each of the two largest clients go."""
    tell("training")
    rows = sizes(task.clients)
    engine = InProcess(task.clients, task.device, threads=1)
    weights = train(task.network, rows, task.config, engine).weights
    largest = sorted(task.clients, key=lambda name: (-rows[name], name))[:2]
    for number, name in enumerate(largest, 1):
        yield from _client(task, weights, name, number, conditions, tell)


def _client(
    task: Task,
    weights: Weights,
    name: str,
    number: int,
    conditions: Sequence[float],
    tell: Callable[[str], None],
) -> Iterator[Run]:
    case = local_case(
        task.network,
        weights,
        UnlearningRequest(frozenset({name})),
        task.config,
        task.clients,
        device=task.device,
        threads=1,
    )
    product, right = _equation(case)
    ritz = solve(product, right, iterations=LANCZOS, damping=DAMPING).report.ritz
    assert ritz is not None  # there was an iteration
    highest = ritz[1] - DAMPING
    diagonal = estimate_diagonal(product, len(right), probes=PROBES, seed=task.seed)

    def run(damping: float, *, shown: bool, preconditioned: bool = False) -> Run:
        said = f"client {number}, δ {damping:.3g}{', preconditioned' * preconditioned}"
        tell(said)
        report: SolverReport = solve(
            product,
            right,
            iterations=SHOWN if shown else CAP,
            tolerance=0.0 if shown else TOLERANCE,
            damping=damping,
            diagonal=preconditioner(diagonal, damping) if preconditioned else None,
        ).report
        residuals = tuple(float(f"{value:.4g}") for value in report.residuals)
        condition = (highest + damping) / damping
        return Run(
            task.setting.name,
            task.seed,
            number,
            preconditioned,
            shown,
            float(f"{damping:.6g}"),
            float(f"{condition:.6g}"),
            report.outcome,
            residuals,
        )

    yield run(DAMPING, shown=True)
    for condition in conditions:
        damping = highest / (condition - 1)
        for preconditioned in (False, True):
            yield run(damping, shown=False, preconditioned=preconditioned)


def _equation(case: UnlearningCase) -> tuple[Product, torch.Tensor]:
    """Return v ↦ A v of those who stay, and b, the mean gradient of the rows to forget."""
    asking = Asking(case.network, case.weights, case.config.local, case.config.seed)
    penalty = penalty_of(case)
    stay = sorted(case.retained.rows)
    panel = Panel(asking, case.retained, stay, "gauss-newton", penalty)
    assert case.targets is not None  # in this process everybody is online
    mean = to_vector(weighted_mean(asking.gradients(case.targets))).double()
    return panel.times, mean + penalty * to_vector(case.weights).double()
