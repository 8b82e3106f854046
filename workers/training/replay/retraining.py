"""Repeats a claimed training round by round: equal bits, or a different training."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import torch

from workers.training.fedavg.base import Answers, ClientData, Fault, RoundTask
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.fedavg.server import ServerState
from workers.training.networks.registry import Network
from workers.training.networks.weights import digest_of, encode_weights, initial_weights


class WithoutSome:
    """An engine that drops the answers that were missing in the repeated training."""

    def __init__(
        self,
        clients: Mapping[str, ClientData],
        missing: Collection[tuple[int, str]],
        device: torch.device | str = "cpu",
    ) -> None:
        self._engine = InProcess(clients, device, threads=1)
        self._missing = frozenset(missing)

    def run(self, tasks: Sequence[RoundTask], *, timeout: float = 0.0) -> Answers:
        """Return the answers, and a fault for each missing one."""
        here = [task for task in tasks if (task.round, task.client) not in self._missing]
        answers = self._engine.run(here, timeout=timeout)
        gone = [
            Fault(task.client, "no-answer")
            for task in tasks
            if (task.round, task.client) in self._missing
        ]
        return replace(answers, faults=[*answers.faults, *gone])


def start_digest(network: Network, config: TrainingConfig) -> str:
    """Return the hex SHA-256 of the file of the weights that training begins with."""
    return _digest(network, initial_weights(network, config.seed))


def reexecute(
    network: Network,
    clients: Mapping[str, ClientData],
    config: TrainingConfig,
    missing: Collection[tuple[int, str]],
    device: torch.device | str = "cpu",
    tell: Callable[[int], None] | None = None,
) -> str:
    """Return the hex SHA-256 of the model file that the training ends with.

    clients: the retained training rows. missing: (round, client) of answers that are claimed
    to have been dropped. tell is called with the number of each finished round. Raises
    RefusedError if the training would.
    """
    if not clients:
        return start_digest(network, config)  # a training on nothing ends where it began
    engine = WithoutSome(clients, missing, device)

    def after(_: ServerState, record: RoundRecord) -> bool:
        if tell is not None:
            tell(record.round)
        return False

    exact = replace(config, timeout=0.0)
    trained = train(network, sizes(clients), exact, engine, after=after)
    return _digest(network, trained.weights)


def most_missing(config: TrainingConfig, clients: int) -> int:
    """Return how many silo answers a training may lack: half of those requested.

    Choosing which answers are missing only chooses between models that never saw the erased
    rows, but a training that lacks most answers proves little.
    """
    asked = max(config.min_clients, math.floor(config.participation * clients + 0.5))
    return min(asked, clients) * config.rounds // 2


def _digest(network: Network, weights: Mapping[str, torch.Tensor]) -> str:
    return digest_of(encode_weights(network.id, network.parameters, weights))
