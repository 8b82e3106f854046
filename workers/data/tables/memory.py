"""A bound on the memory of reading a file, whatever size the file declares."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from workers.errors import DatasetError

# Allocators reserve address space ahead, and threads their stacks.
AHEAD = 4 << 30


@contextmanager
def bounded(most: int) -> Iterator[None]:
    """Refuse to use more than about `most` bytes, by the process's own limit on Linux.

    A page of a Parquet file or a buffer of an Arrow file may unpack to thousands of times its
    size, and its declared size may be forged: only the allocation itself is reliable. Raises
    DatasetError if the block runs out of memory.
    """
    try:
        with _address_space(most + AHEAD):
            yield
    except MemoryError:
        raise DatasetError(too_large(most)) from None


def too_large(most: int) -> str:
    """Return the message for a table that does not fit."""
    return (
        f"the table needs more than {most / 2**30:.3g} GiB in memory: take fewer columns with "
        "--features, or register it in parts"
    )


@contextmanager
def _address_space(more: int) -> Iterator[None]:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    import resource  # not on Windows, which has no /proc either

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = int(statm.read_text().split()[0]) * resource.getpagesize() + more
    if soft != resource.RLIM_INFINITY and soft <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
