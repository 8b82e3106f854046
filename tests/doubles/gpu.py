"""A GPU where there is none: it computes as the processor does, or as is planted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from workers import devices
from workers.methods.ridge.statistics import backend
from workers.training.fedavg import device, evaluate, in_process
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.evaluate import logits_of
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights

NAME = "Example GPU 40GB"
SELF_TEST = "self-test"  # the client whose rows the self-test computes on

Change = Callable[[RoundTask, ClientUpdate], ClientUpdate]


def scaled(by: float) -> Change:
    """Return a change that makes each answer `by` times as long."""
    return lambda _, update: longer(update, by)


def longer(update: ClientUpdate, by: float) -> ClientUpdate:
    """Return an answer `by` times as long."""
    return replace(update, delta={name: by * part for name, part in update.delta.items()})


def simulated(patch: pytest.MonkeyPatch, change: Change) -> list[RoundTask]:
    """Let torch see a CUDA device that computes as the CPU does, and then changes the answer.

    Returns the list of the tasks that the device is given, the self-test's included.
    """
    given: list[RoundTask] = []

    def answer(
        task: RoundTask, data: ClientData, on: torch.device | str = "cpu"
    ) -> ClientUpdate:
        update = respond(task, data)
        if torch.device(on).type == "cpu":
            return update
        given.append(task)
        return change(task, update)

    def logits(
        network: Network,
        weights: Weights,
        inputs: torch.Tensor,
        _: torch.device | str = "cpu",
        threads: int | None = None,
    ) -> torch.Tensor:
        return logits_of(network, weights, inputs, threads=threads)

    patch.setattr(torch.cuda, "is_available", lambda: True)
    patch.setattr(torch.cuda, "get_device_name", lambda _: NAME)
    for room in (device, in_process):
        patch.setattr(room, "respond", answer)
    patch.setattr(evaluate, "logits_of", logits)
    device.check_once.cache_clear()
    return given


@contextmanager
def worker_of_a_gpu() -> Iterator[None]:
    """Let this process train as `lethe worker --device cuda` does; sums stay on the processor."""
    with backend.using(None):
        devices.choose("cuda")
        backend.use(None)
        try:
            yield
        finally:
            devices.choose("cpu")
            device.check_once.cache_clear()
