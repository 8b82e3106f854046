"""One thread for small BLAS calls.

OpenBLAS's threads wait for each other by spinning. If a second process competes for the core, a
canonical head at d = 768 took 90 ms on one thread and 3.9 s on two, because most of its calls
last less than a scheduler's time slice. A worker fleet is exactly such a machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy  # noqa: F401  (its BLAS must be loaded before the controller looks)
import scipy.linalg  # noqa: F401
from threadpoolctl import ThreadpoolController

# Floating-point operations of one call from which several threads pay off: 10 ms on one core of
# 2024. The results never depend on it, only the time.
PARALLEL_FROM = 500_000_000


@contextmanager
def threads_for(flops: int) -> Iterator[None]:
    """Run BLAS calls of `flops` operations each on one thread if they are small.

    The limit holds for the whole process while the block runs, and is restored after it.
    """
    if flops >= PARALLEL_FROM:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looking up the loaded libraries takes 7 ms
