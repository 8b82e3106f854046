"""How many heaps the C library makes for a process's threads."""

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8  # malloc.h of glibc


def share_heaps() -> None:
    """Limit glibc to two heaps for all threads, before any thread starts.

    By default each thread may get a heap of its own, and each keeps its peak of freed memory:
    an API process, with 40 threads that serve requests, would grow for hours. A worker has
    fewer, as the sender, the witnesses and the schedule. docs/benchmarks/soak.md has the
    figures. Other C libraries have no such limit, and need none.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)
