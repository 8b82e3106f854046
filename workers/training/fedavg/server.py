"""The server's side of a round: weighted mean, then an optimiser over the pseudo-gradient.

Source: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2. All sums
are elementwise, in float64 and in the order of the clients' names, and each weight is rounded
to float32 once: the result does not depend on engine, arrival order or threads.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from workers.training.fedavg.base import ClientUpdate
from workers.training.fedavg.config import ServerConfig
from workers.training.fedavg.errors import DivergedError
from workers.training.networks.weights import Weights, is_finite

Direction = Mapping[str, torch.Tensor]  # float64, names as the weights


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """The global model and the optimiser's moments (float64, empty if it has none)."""

    weights: Weights
    momentum: Direction
    variance: Direction


def initial_state(weights: Weights, config: ServerConfig) -> ServerState:
    """Return the state before the first round: no momentum, variance τ² (the paper's least)."""
    momentum, variance = {}, {}
    for name in sorted(weights):
        zeros = torch.zeros_like(weights[name], dtype=torch.float64)
        if config.optimizer != "sgd" or config.momentum:
            momentum[name] = zeros
        if config.optimizer != "sgd":
            variance[name] = zeros + config.tau**2
    return ServerState(weights, momentum, variance)


def weighted_mean(
    updates: Mapping[str, ClientUpdate], total: int | None = None
) -> dict[str, torch.Tensor]:
    """Return Σ (n_i / n) Δ_i, float64, with n_i the clients' rows.

    n is Σ n_i unless `total` gives it: PUF-Regular divides both of its sums by the rows
    of all clients. updates must have been screened and not be empty.
    """
    rows = sum(update.samples for update in updates.values()) if total is None else total
    mean: dict[str, torch.Tensor] = {}
    for client in sorted(updates):
        share = updates[client].samples / rows
        for name, part in updates[client].delta.items():
            scaled = part.to(torch.float64, copy=True).mul_(share)
            mean[name] = mean[name].add_(scaled) if name in mean else scaled
    return dict(sorted(mean.items()))


def apply(state: ServerState, direction: Direction, config: ServerConfig) -> ServerState:
    """Return the state after one step along Δ, the negated pseudo-gradient.

    Raises DivergedError if a weight stops being finite.
    """
    weights, momentum, variance = {}, {}, {}
    for name in sorted(state.weights):
        step = delta = direction[name]
        if config.optimizer == "sgd":
            if config.momentum:
                step = momentum[name] = config.momentum * state.momentum[name] + delta
        else:
            first, second = state.momentum[name], state.variance[name]
            first = config.beta1 * first + (1 - config.beta1) * delta
            square = delta.square()
            if config.optimizer == "adam":
                second = config.beta2 * second + (1 - config.beta2) * square
            else:
                second = second - (1 - config.beta2) * square * torch.sign(second - square)
            momentum[name], variance[name] = first, second
            step = first / (second.sqrt() + config.tau)
        moved = (state.weights[name].double() + config.learning_rate * step).float()
        if not is_finite(moved):
            raise DivergedError(f"{name}: not finite after the round, lower the learning rate")
        weights[name] = moved
    return ServerState(weights, momentum, variance)
