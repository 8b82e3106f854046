"""The clients' device: chosen, tested before use, named in certificates.

Tested on the CPU, and with a device that is missing, broken or out of memory. On a GPU this
runs in `make gpu-check` only; docs/networks-and-silos.md has the record of one.
"""

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, Protocol, get_args, runtime_checkable

import torch

from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.config import LocalConfig, Precision
from workers.training.fedavg.determinism import deterministic, environment
from workers.training.fedavg.errors import DeviceError
from workers.training.networks.registry import network
from workers.training.networks.weights import difference, initial_weights, norm

log = logging.getLogger(__name__)

Choice = Literal["auto", "cpu", "cuda"]
# Relative to the answer's norm. In this training another order of float32 sums makes a
# difference of 1e-6, operands rounded to TF32 make 0.1.
TOLERANCE = 1e-3
# torch has an error class for its own allocator on a GPU only. The message names the others:
# the processor's, CUDA's where kernels and streams allocate, and that of cuBLAS.
ALLOCATORS = ("DefaultCPUAllocator", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@runtime_checkable
class Located(Protocol):
    """An engine that knows where its clients compute."""

    @property
    def environment(self) -> Mapping[str, str]:
        """`device` and `deterministic`, as in `facts`."""


def choose(device: str) -> torch.device:
    """Return the named device. auto: CUDA if available and passing its test, else the CPU.

    Raises RefusedError for another name, and DeviceError for cuda if it is missing or fails
    its self-test. With auto a failing device is only logged as a warning.
    """
    if device not in get_args(Choice):
        raise RefusedError(f"device: choose one of {', '.join(get_args(Choice))}")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError("torch sees no CUDA device: install its driver, or choose cpu")
    found = torch.device("cuda")
    try:
        check_once(found)
    except DeviceError as error:
        if device == "cuda":
            raise
        log.warning("%s: computing on the CPU", error)
        return torch.device("cpu")
    return found


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device's memory did not suffice."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(name in str(error) for name in ALLOCATORS)
    )


def check(device: torch.device) -> None:
    """Raise DeviceError unless answers there match the CPU's and repeat bit for bit.

    A few training steps and a Gauss-Newton product of a small convolutional network. They may
    differ from the CPU's by float32 rounding only.
    """
    training, data = _training()
    trained = _answer(training, data, torch.device("cpu"))
    product = RoundTask(
        training.network,
        1,
        training.client,
        training.weights,
        training.base,
        training.config,
        training.seed,
        "gauss-newton",
        trained.delta,
    )
    for task in (training, product):
        try:
            got, again = (_answer(task, data, device) for _ in range(2))
        except (RuntimeError, AssertionError, OSError) as error:  # a driver, or torch without
            name = type(error).__name__
            raise DeviceError(f"the device failed its self-test ({name})") from error
        wanted = _answer(task, data, torch.device("cpu")).delta
        gap = norm(difference(got.delta, wanted))
        if not gap <= TOLERANCE * norm(wanted):  # NaN is no small gap
            raise DeviceError(f"the device failed its self-test: {task.operation} is wrong")
        if any(not torch.equal(got.delta[name], again.delta[name]) for name in wanted):
            raise DeviceError(f"the device failed its self-test: {task.operation} varies")


def facts(device: torch.device | str, precision: Precision) -> dict[str, str]:
    """Return a certificate's facts on the device and the arithmetic of a training.

    device is the processor's kind or the GPU's name; precision that of the training steps
    (gradients and products of curvature are float32 always); deterministic whether torch
    currently allows only deterministic kernels: call it where the work runs.
    """
    switched = torch.are_deterministic_algorithms_enabled()
    return {
        "device": environment(device)["device"],
        "precision": precision,
        "deterministic": "true" if switched else "false",
    }


def facts_of(engine: object, config: LocalConfig) -> dict[str, str]:
    """Return the facts of an engine's clients; "unknown" if the engine does not know them."""
    found = {"device": "unknown", "deterministic": "unknown"}
    if isinstance(engine, Located):
        found = {name: engine.environment[name] for name in found}
    return {**found, "precision": config.precision}


@lru_cache(maxsize=8)
def check_once(device: torch.device) -> None:
    """Check a device as `check`, unless this process has done so. Raises DeviceError."""
    check(device)


def _training() -> tuple[RoundTask, ClientData]:
    """Return a task of six steps and its 12 rows."""
    shape = {"channels": 1, "height": 8, "width": 8, "classes": 3}
    named = network("simple-cnn", shape)
    data = ClientData(
        torch.sin(torch.arange(12 * 64.0)).view(12, 1, 8, 8), torch.arange(12) % 3
    )
    config = LocalConfig(epochs=2, batch_size=4, learning_rate=0.05, momentum=0.9)
    return RoundTask(named, 1, "self-test", initial_weights(named, 1), "", config, 1), data


def _answer(task: RoundTask, data: ClientData, device: torch.device) -> ClientUpdate:
    with deterministic():
        return respond(task, data, device)
