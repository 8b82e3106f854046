"""The device a worker computes on: chosen and tested once, when the process starts.

torch is imported only if a device is configured: it is an optional dependency, and costs
seconds and hundreds of megabytes.
"""

import ctypes
import logging
import os
from importlib.util import find_spec
from typing import Literal

from workers import libraries
from workers.methods.ridge.statistics import backend
from workers.methods.ridge.statistics.backend import Backend, BackendError

log = logging.getLogger(__name__)

DEVICES = ("auto", "cpu", "cuda", "torch-cpu")
_chosen = "cpu"


def choose(device: str) -> Backend | None:
    """Use a device for the sums of this process and return it; None: the CPU without torch.

    cpu: never imports torch. cuda: the first CUDA device. auto: that device if there is one.
    torch-cpu: torch on the processor, the same code where there is no GPU. A requested device
    that is missing, or fails its self-test, causes a warning and the CPU is used.
    """
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}")
    global _chosen
    _chosen = device
    backend.use(None)
    if device == "cpu" or (device == "auto" and not has_driver()):
        return None
    try:
        chosen = open_device("cpu" if device == "torch-cpu" else "cuda")
    except BackendError as error:
        log.warning("%s: computing on the CPU", error)
        return None
    backend.use(chosen)
    log.info("computing on %s", chosen.environment["device"])
    return chosen


def for_training() -> str:
    """Return the training device configured for this process: auto, cpu or cuda."""
    return "cpu" if _chosen == "torch-cpu" else _chosen


def open_device(kind: Literal["cpu", "cuda"]) -> Backend:
    """Return torch's device of that kind, tested and not yet in use.

    Raises DeviceError, naming the cause, if the device is missing or computes wrongly.
    """
    if find_spec("torch") is None:
        raise BackendError(f"torch is not installed, run {libraries.with_extra('torch')}")
    os.environ.update(backend.NO_EMULATION)
    try:
        import torch

        from workers.methods.ridge.statistics.torch_backend import (
            TorchBackend,
            check_device,
            forbid_reduced_precision,
        )

        forbid_reduced_precision()
        if kind == "cuda" and not torch.cuda.is_available():
            raise BackendError("torch finds no CUDA device")
        opened = TorchBackend(torch.device(kind))
        check_device(opened)
    except (ImportError, OSError, RuntimeError) as error:  # a broken driver or installation
        raise BackendError(f"torch cannot be used ({type(error).__name__})") from error
    return opened


def has_driver() -> bool:
    """Whether an NVIDIA driver can be loaded: without one, importing torch is not worth it."""
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True
