"""Equal bits for equal inputs on one machine, and a record of what the bits depend on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# cuBLAS reads it when creating its first handle; without it torch refuses deterministic mode.
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@contextmanager
def deterministic(threads: int | None = None) -> Iterator[None]:
    """Allow only deterministic kernels inside, with `threads` CPU threads (None: unchanged).

    The number of threads changes how sums are split, and so the last bits. The switches apply
    to the process: train in one of its threads at a time.
    """
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    # Not `use_deterministic_algorithms`: it also tells torch's compiler, which nothing here
    # uses and which takes each process 2 s to import.
    before = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    tf32 = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.set_deterministic_debug_mode("error")
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        if threads is not None:
            torch.set_num_threads(threads)
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = cudnn
        torch.backends.cuda.matmul.allow_tf32 = tf32
        if threads is not None:
            torch.set_num_threads(before[1])


def environment(device: torch.device | str = "cpu") -> dict[str, str]:
    """Return what must agree for equal bits: device, torch, threads, instruction set."""
    named = torch.device(device)
    found = {
        "device": named.type,
        "threads": str(torch.get_num_threads()),
        "torch": str(torch.__version__),
    }
    if named.type == "cuda":
        found["device"] = torch.cuda.get_device_name(named)
        found["cuda"] = str(torch.version.cuda)
    else:
        found["instructions"] = torch.backends.cpu.get_cpu_capability()
    return found
