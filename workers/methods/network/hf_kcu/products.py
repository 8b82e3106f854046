"""Gradients and curvature products of many clients as one vector and one matrix.

Conjugate gradients need the same matrix each time, so the clients whose curvature is used are
fixed at the start. A client that stops answering or answers unusably is dropped for good, and
the solver restarts on the others' matrix.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from workers.errors import RefusedError
from workers.methods.network.base import Side
from workers.training.fedavg.base import ClientUpdate, Fault, Operation, Work
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.errors import RoundFailedError
from workers.training.fedavg.rounds import collect, make_tasks
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, from_vector, to_vector

Curvature = Literal["gauss-newton", "hessian"]


class NobodyAnsweredError(RefusedError):
    """Too few retained clients answered usably to locate the optimum."""


class PanelChangedError(Exception):
    """A client dropped out between two products: the iterations belong to another matrix."""


@dataclass(slots=True, eq=False)
class Asking:
    """Queries to clients about one model, and the work they have cost so far.

    max_norm bounds each client's gradient and its product with a unit vector; 0: no bound.
    Every question has its own number, so that a late answer to an earlier one is dropped.
    """

    network: Network
    weights: Weights
    config: LocalConfig
    seed: int
    timeout: float = 0.0
    max_norm: float = 0.0
    questions: int = 0
    work: Work = field(default_factory=Work)
    faults: list[Fault] = field(default_factory=list)

    def ask(
        self,
        side: Side,
        clients: Iterable[str],
        operation: Operation,
        vector: Weights | None = None,
        share: float = 1.0,
    ) -> Mapping[str, ClientUpdate]:
        """Return the usable answers by client, sorted; faults and work are added up here."""
        self.questions += 1
        tasks = make_tasks(
            self.network,
            self.weights,
            clients,
            self.config,
            round=self.questions,
            seed=self.seed,
            operation=operation,
            vector=vector,
            share=share,
        )
        found = collect(
            tasks,
            side.engine,
            rows=side.rows,
            min_clients=0,
            max_norm=self.max_norm,
            timeout=self.timeout,
        )
        self.work += found.work
        self.faults += found.faults
        return found.updates

    def gradients(self, side: Side) -> Mapping[str, ClientUpdate]:
        """Return each client's ∇ℓ_i, the mean over its rows of this side."""
        try:
            return self.ask(side, side.rows, "gradient")
        except RoundFailedError:
            return {}  # no client was reached: the caller decides what that means


@dataclass(slots=True, eq=False)
class Panel:
    """The clients whose products are averaged, by rows, as one matrix A (without damping).

    A v = Σ (n_i/n) A_i v + penalty · v, with A_i over a share of the client's rows, the same
    ones in every product. With fewer than `least` rows the panel no longer represents all:
    NobodyAnsweredError.
    """

    asking: Asking
    side: Side
    clients: list[str]
    operation: Curvature
    penalty: float
    least: float = 1.0
    share: float = 1.0

    def times(self, vector: torch.Tensor) -> torch.Tensor:
        """Return A v, float64; the products themselves are float32.

        Raises PanelChangedError if a client dropped out, NobodyAnsweredError if too many did.
        """
        length = float(vector.norm())
        if length == 0:
            return torch.zeros_like(vector)
        # Send a unit vector: the entries of a late direction would vanish in float32.
        unit = from_vector(vector / length, self.asking.network)
        try:
            updates = self.asking.ask(self.side, self.clients, self.operation, unit, self.share)
        except RoundFailedError:
            updates = {}
        if len(updates) < len(self.clients):
            self.clients = sorted(updates)
            self.check()
            raise PanelChangedError
        mean = to_vector(weighted_mean(updates))
        return mean.mul_(length).add_(vector, alpha=self.penalty)

    def check(self) -> None:
        """Raise NobodyAnsweredError if too few rows are left."""
        left = sum(self.side.rows[client] for client in self.clients)
        if left < self.least or not self.clients:
            reasons = ", ".join(sorted({fault.reason for fault in self.asking.faults}))
            raise NobodyAnsweredError(
                f"too few of those who stay answered usably ({reasons or 'none'}): ask again "
                f"when they are back, or lower least_share; the model is as it was"
            )
