"""The mean loss of a model on retained rows, which guards steps and stops recoveries.

The oracle of PUF's paper, the test accuracy of a retrained model, is not available in
production.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import torch

from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData, Engine, Work, check_data
from workers.training.fedavg.client.flops import forward_flops
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.errors import RoundFailedError
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.rounds import collect, make_tasks
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights


@dataclass(frozen=True, slots=True)
class ValidationLoss:
    """The mean loss in nats, NaN or infinite where the model has none, and the work it took."""

    loss: float
    work: Work


Validation = Callable[[Weights], ValidationLoss]


def held_out(
    network: Network,
    rows: ClientData,
    device: torch.device | str = "cpu",
    threads: int | None = None,
) -> Validation:
    """Return the loss on rows that the server holds itself.

    They must be retained rows: rows of the forget set would hold the step back. Raises
    RefusedError for rows that are not the network's.
    """
    check_data(network, rows)

    def measure(weights: Weights) -> ValidationLoss:
        started = time.perf_counter()
        loss = evaluate(network, weights, rows, device, threads).loss
        flops = len(rows) * forward_flops(network)
        return ValidationLoss(loss, Work(flops=flops, seconds=time.perf_counter() - started))

    return measure


def by_clients(
    network: Network,
    engine: Engine,
    rows: Mapping[str, int],
    config: LocalConfig,
    *,
    timeout: float = 0.0,
    share: float = 1.0,
) -> Validation:
    """Return the loss on the retained clients' rows, weighted by row counts.

    share: the share of each client's rows, the same rows for every model.

    Clients only evaluate: a forward pass, and no tensor comes back. All must answer, or two
    models would be compared on different rows: measuring raises RoundFailedError otherwise.
    """
    if not rows:
        raise RefusedError(
            "no client stays that could be asked for its loss: give held-out rows to measure on"
        )

    def measure(weights: Weights) -> ValidationLoss:
        tasks = make_tasks(
            network, weights, rows, config, round=1, seed=0, operation="evaluate", share=share
        )
        found = collect(tasks, engine, rows=rows, min_clients=0, timeout=timeout)
        if any(fault.reason != "not-finite" for fault in found.faults):
            raise RoundFailedError(
                "not every client who stays told its loss: wait until they are back, or give "
                "held-out rows to measure on"
            )
        # A client whose loss is not finite has answered: this model is useless to it.
        return ValidationLoss(inf if found.faults else found.loss, found.work)

    return measure
