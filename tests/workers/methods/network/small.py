"""Cases that run in milliseconds, and engines whose clients misbehave."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS, client_data
from workers.methods.network.base import UnlearningCase, UnlearningRequest
from workers.methods.network.local_case import local_case
from workers.methods.network.validation import held_out
from workers.training.fedavg.base import Answers, ClientUpdate, Engine, Fault, RoundTask
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import train
from workers.training.networks.weights import Weights

TRAINED = train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS)).weights
VALIDATION = client_data(30, 99)
WHOLE = UnlearningRequest(frozenset({"bert"}))
SOME_ROWS = UnlearningRequest(rows={"bert": (0, 3, 4, 11)})
SEVERAL = UnlearningRequest(frozenset({"anna"}), {"bert": (1, 2)})
REQUESTS = {"client": WHOLE, "rows": SOME_ROWS, "several at once": SEVERAL}


def case(request: UnlearningRequest = WHOLE, **changes: Any) -> UnlearningCase:
    given = {"validation": held_out(NETWORK, VALIDATION), **changes}
    return local_case(NETWORK, TRAINED, request, CONFIG, CLIENTS, **given)


class Changed:
    """An engine whose answers are changed, lost (None) or turned into faults on the way."""

    def __init__(
        self, inner: Engine, change: Callable[[ClientUpdate], ClientUpdate | Fault | None]
    ) -> None:
        self.inner, self.change = inner, change

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        answers = self.inner.run(tasks, timeout=timeout)
        updates: dict[str, ClientUpdate] = {}
        faults = list(answers.faults)
        for client, update in answers.updates.items():
            changed = self.change(update)
            if isinstance(changed, Fault):
                faults.append(changed)
            elif changed is not None:
                updates[client] = changed
        return replace(answers, updates=updates, faults=faults)


class Silent:
    """An engine that no test may ask."""

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        raise AssertionError("this engine was not to be asked")


def scaled(by: float) -> Callable[[ClientUpdate], ClientUpdate]:
    def change(update: ClientUpdate) -> ClientUpdate:
        return replace(update, delta={name: by * part for name, part in update.delta.items()})

    return change


def equal(left: Weights, right: Weights) -> bool:
    same: bool = left.keys() == right.keys()
    return same and all(torch.equal(left[name], right[name]) for name in left)


ON_THE_CPU = {"device": "cpu", "deterministic": "true", "precision": "float32"}


class KilledError(Exception):
    """The worker died."""


def killed_after(saves: int) -> tuple[list[bytes], Callable[[bytes], None]]:
    """Return what was saved, and a `save` that stores and then dies at the n-th call."""
    kept: list[bytes] = []

    def save(data: bytes) -> None:
        kept.append(data)
        if len(kept) == saves:
            raise KilledError

    return kept, save
