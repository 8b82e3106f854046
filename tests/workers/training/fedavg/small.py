"""A federation of three clients that trains in milliseconds, and engines that misbehave."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from workers.training.fedavg.base import (
    Answers,
    ClientData,
    Clients,
    ClientUpdate,
    Fault,
    RoundTask,
)
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.networks.registry import network

torch.set_num_threads(1)

NETWORK = network("logistic", {"features": 4, "classes": 3})
ROWS = {"anna": 7, "bert": 12, "cleo": 5}
LOCAL = LocalConfig(epochs=2, batch_size=4, learning_rate=0.2)
CONFIG = TrainingConfig(rounds=6, seed=3, local=LOCAL)


def client_data(rows: int, seed: int, features: int = 4, classes: int = 3) -> ClientData:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes, (rows,), generator=generator)
    inputs = torch.randn((rows, features), generator=generator)
    inputs[:, :classes] += 4 * torch.nn.functional.one_hot(targets, classes)
    return ClientData(inputs, targets)


CLIENTS: Clients = {name: client_data(rows, rows) for name, rows in ROWS.items()}

Change = Callable[[ClientUpdate], ClientUpdate | Fault | None]


def spoiled(value: float) -> Callable[[ClientUpdate], ClientUpdate]:
    """Return what writes a value into an answer."""

    def change(update: ClientUpdate) -> ClientUpdate:
        bias = update.delta["head.bias"].clone()
        bias[1] = value
        return replace(update, delta={**update.delta, "head.bias": bias})

    return change


class Meddling:
    """An engine in which some clients' answers are changed, or lost (None), on the way."""

    def __init__(self, changes: Mapping[str, Change], rounds: Sequence[int] = (1,)) -> None:
        self.inner = InProcess(CLIENTS)
        self.changes = changes
        self.rounds = rounds

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        answers = self.inner.run(tasks, timeout=timeout)
        updates, faults = dict(answers.updates), list(answers.faults)
        for client, change in self.changes.items():
            if client in updates and updates[client].round in self.rounds:
                changed = change(updates.pop(client))
                if isinstance(changed, Fault):
                    faults.append(changed)
                elif changed is not None:
                    updates[client] = changed
        return replace(answers, updates=updates, faults=faults)


class Backwards:
    """An engine that works and answers in the opposite order."""

    def __init__(self, clients: Clients) -> None:
        self.inner = InProcess(clients)

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        updates: dict[str, ClientUpdate] = {}
        down = up = 0
        for task in reversed(list(tasks)):
            answers = self.inner.run([task], timeout=timeout)
            updates.update(answers.updates)
            down, up = down + answers.bytes_down, up + answers.bytes_up
        return Answers(updates, [], down, up)
