"""Every way in which torch runs out of memory, by one name."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from workers.errors import RefusedError


class OutOfMemoryError(RefusedError):
    """The memory did not suffice. The model that was to be unlearned is as it was."""


@contextmanager
def named_out_of_memory() -> Iterator[None]:
    """Raise OutOfMemoryError for whatever torch raises where memory does not suffice."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
        # torch has no class of its own for the CPU: its allocator names itself.
        of_cpu = "DefaultCPUAllocator" in str(error)
        if not of_cpu and not isinstance(error, MemoryError | torch.OutOfMemoryError):
            raise
        raise OutOfMemoryError(
            "the memory did not suffice for the rows or the steps: lower batch_size (or "
            "samples), or use puf-special or retrain"
        ) from None
