"""Converged softmax regression over five clients, and its refits by dense Newton steps."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.workers.training.fedavg.small import client_data
from workers.methods.network.base import Side, UnlearningCase, UnlearningRequest
from workers.methods.network.hf_kcu.method import HfKcu
from workers.methods.network.local_case import local_case
from workers.methods.network.validation import held_out
from workers.training.fedavg.base import (
    Answers,
    ClientData,
    Clients,
    ClientUpdate,
    Engine,
    Fault,
    RoundTask,
)
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.networks.registry import network
from workers.training.networks.weights import from_vector, to_vector

torch.set_num_threads(1)

PENALTY = 0.05
NETWORK = network("logistic", {"features": 4, "classes": 3})
CONFIG = TrainingConfig(
    rounds=4, seed=3, local=LocalConfig(batch_size=16, weight_decay=PENALTY, learning_rate=0.1)
)
ROWS = {"ada": 40, "ben": 60, "cyd": 50, "dot": 55, "eve": 45}
CLIENTS: Clients = {name: client_data(rows, rows) for name, rows in ROWS.items()}
VALIDATION = client_data(80, 7)


def noisy(name: str, share: float = 0.5) -> Clients:
    """Return the clients, one of them with a share of its rows labelled at random."""
    data, rng = CLIENTS[name], np.random.default_rng(0)
    targets = data.targets.clone()
    wrong = int(share * len(data))
    targets[:wrong] = torch.from_numpy(rng.integers(0, 3, wrong))
    return {**CLIENTS, name: ClientData(data.inputs, targets)}


POISONED = noisy("ben", 0.8)


def refit(clients: Clients) -> np.ndarray:
    """Return the minimiser (15,) of mean cross-entropy + (λ/2)‖θ‖², in float64."""
    theta = np.zeros(15)
    for _ in range(30):
        theta -= np.linalg.solve(*derivatives(clients, theta))
    assert np.linalg.norm(derivatives(clients, theta)[1]) < 1e-12
    return theta


def derivatives(clients: Clients, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (Hessian, gradient) by the textbook formulas; order head.bias, head.weight."""
    x = np.concatenate([data.inputs.numpy() for data in clients.values()]).astype(float)
    t = np.concatenate([data.targets.numpy() for data in clients.values()])
    z = x @ theta[3:].reshape(3, 4).T + theta[:3]
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    inner = p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None, :]
    blocks = np.zeros((len(x), 3, 15))  # dz/dθ
    for c in range(3):
        blocks[:, c, c] = 1
        blocks[:, c, 3 + 4 * c : 7 + 4 * c] = x
    hessian = np.einsum("nia,nij,njb->ab", blocks, inner, blocks) / len(x)
    gradient = np.einsum("nia,ni->a", blocks, p - np.eye(3)[t]) / len(x)
    return hessian + PENALTY * np.eye(15), gradient + PENALTY * theta


def case_of(
    *targets: str, clients: Clients = POISONED, theta: np.ndarray | None = None, **more: Any
) -> UnlearningCase:
    """Return the case of a converged model (or one at `theta`) that forgets `targets`."""
    at = refit(clients) if theta is None else theta
    return local_case(
        NETWORK,
        from_vector(torch.from_numpy(at), NETWORK),
        UnlearningRequest(clients=frozenset(targets)),
        CONFIG,
        clients,
        **{"validation": held_out(NETWORK, VALIDATION), **more},
    )


def without(clients: Clients, *names: str) -> Clients:
    return {name: data for name, data in clients.items() if name not in names}


EXACT = HfKcu(newton_above=0.1, damping=0.0, iterations=60, tolerance=1e-6, guard=None)


def delta_of(method: HfKcu, case: UnlearningCase) -> np.ndarray:
    return np.asarray(method.direction(case).delta)


def vector_of(case: UnlearningCase) -> np.ndarray:
    return np.asarray(to_vector(case.weights).double())


Change = Callable[[RoundTask, ClientUpdate], ClientUpdate | Fault | None]


class Spoiled:
    """An engine that changes each answer on the way, or loses it (None); it counts tasks."""

    def __init__(self, inner: Engine, change: Change) -> None:
        self.inner, self.change = inner, change
        self.tasks: list[RoundTask] = []

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        answers = self.inner.run(tasks, timeout=timeout)
        self.tasks += tasks
        updates, faults = {}, list(answers.faults)
        for task in tasks:
            changed = self.change(task, answers.updates[task.client])
            if isinstance(changed, Fault):
                faults.append(changed)
            elif changed is not None:
                updates[task.client] = changed
        return replace(answers, updates=updates, faults=faults)


def spoil(case: UnlearningCase, change: Change) -> tuple[UnlearningCase, Spoiled]:
    """Return the case with the retained clients' answers changed."""
    engine = Spoiled(case.retained.engine, change)
    return replace(case, retained=Side(engine, case.retained.rows)), engine
