"""Where large sums over rows are computed: on BLAS, or on an accelerator.

One choice for a process, made at its start by `workers.devices`. The verifier imports nothing
from this room: it recomputes on the processor everything a device has summed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from workers.errors import ModelError

if TYPE_CHECKING:  # a worker starts without numpy: its first fit loads it
    from workers.arrays import IntMatrix, Rows

# Fewer rows than this are added on the processor: the copy of G back from a device
# (8d² bytes) then takes longer than the product itself.
WORTH_ROWS = 256

# What cuBLAS reads when it makes a handle: set it before torch is imported. See "Floating
# Point Emulation" in the cuBLAS documentation, CUDA 13.0 Update 2 and later. 0 is today's
# default, "subject to change", and an operator's shell may hold 1 for another program.
NO_EMULATION = {
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "0",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "0",
    "NVIDIA_TF32_OVERRIDE": "0",
}

Sums: TypeAlias = (
    "tuple[IntMatrix, IntMatrix, int]"  # G (d, d), C (d, c) and the number of rows
)


class BackendError(ModelError):
    """A device computes wrongly or not at all. It is not used again by this process."""


class Backend(Protocol):
    """A device that sums rows to the same bits as `gram.accumulate`."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The device and its software, as a certificate names them."""

    def sums(
        self, blocks: "Iterable[Rows]", dimension: int, classes: int, *, bits: int
    ) -> Sums:
        """Return the exact sums of all rows in `blocks`, whatever their order or sizes.

        Raises RefusedError as `gram.accumulate`, BackendError if the device fails.
        """


_chosen: Backend | None = None


def current() -> Backend | None:
    """Return the device of this process, None for BLAS on the processor."""
    return _chosen


def use(backend: Backend | None) -> None:
    """Compute on `backend` from now on; None: on the processor."""
    global _chosen
    _chosen = backend


@contextmanager
def using(backend: Backend | None) -> Iterator[None]:
    """Compute on `backend` within the block. For tests, benchmarks and the self-test."""
    before = current()
    use(backend)
    try:
        yield
    finally:
        use(before)
