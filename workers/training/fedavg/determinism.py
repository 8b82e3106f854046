"""Equal bits for equal inputs on one machine, and a record of what the bits depend on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# cuBLAS reads it when its first handle is made; without it torch refuses to be deterministic.
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@contextmanager
def deterministic(threads: int | None = None) -> Iterator[None]:
    """Allow only deterministic kernels inside, with so many CPU threads (None: as they are).

    The number of threads changes how sums are split, and so the last bits. The switches
    are the process's: train in one thread of a process at a time.
    """
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    # Not `use_deterministic_algorithms`: it also tells torch's compiler, which nothing here
    # uses, and takes 2 s of each process to import it.
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
    """Return what equal bits need to agree on: device, torch, threads, instruction set."""
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
