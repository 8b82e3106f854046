"""One error for every way in which torch runs out of memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from workers.errors import RefusedError


class OutOfMemoryError(RefusedError):
    """Out of memory. The model to be unlearned is unchanged."""


@contextmanager
def named_out_of_memory() -> Iterator[None]:
    """Turn torch's out-of-memory errors into OutOfMemoryError."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
        # torch has no error class for the CPU: the message names its allocator.
        of_cpu = "DefaultCPUAllocator" in str(error)
        if not of_cpu and not isinstance(error, MemoryError | torch.OutOfMemoryError):
            raise
        raise OutOfMemoryError(
            "the memory did not suffice for the rows or the steps: lower batch_size (or "
            "samples), or use puf-special or retrain"
        ) from None
