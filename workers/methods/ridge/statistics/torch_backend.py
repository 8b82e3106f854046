"""Exact integer statistics through torch in float64, on CUDA or on the processor.

The argument of gram.py holds on every device: float64 adds integers without rounding while
each partial sum stays below 2^53, in any order, with any tiling, split or fused multiply-add.
What breaks it is arithmetic that is not float64: TF32 (10 bits of mantissa), bfloat16, or
cuBLAS's emulation of float64 in fixed point, which keeps as many bits as it estimates to be
enough. All of it is switched off, here and by `backend.NO_EMULATION`, and `device_self_test`
checks it.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from workers.arrays import Codes, IntMatrix, Labels, Matrix, Rows
from workers.methods.ridge.statistics import backend
from workers.methods.ridge.statistics.backend import BackendError, Sums, using
from workers.methods.ridge.statistics.gram import FLOAT_LIMIT, accumulate, check_bounds
from workers.methods.ridge.statistics.quantiser import check_rows, largest_code

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 28  # of one block of rows in float64 on the device


@dataclass(frozen=True, slots=True, eq=False)
class TorchBackend:
    """Sums on one torch device; `block_bytes` bounds a block of float64 rows there.

    G and its float64 partial sum (16d² bytes) stay on the device for the length of a call.
    """

    device: torch.device
    block_bytes: int = BLOCK_BYTES

    @property
    def environment(self) -> Mapping[str, str]:
        """The device, torch's version and on CUDA the toolkit's."""
        named = {"device": f"torch-{self.device.type}", "torch": str(torch.__version__)}
        if self.device.type == "cuda":
            named["device"] = torch.cuda.get_device_name(self.device)
            named["cuda"] = str(torch.version.cuda)
        return named

    def product(self, left: Matrix, right: Matrix) -> IntMatrix:
        """Return left (m, k) @ right (k, n) as int64, for float64 matrices of integers.

        Exact if every partial sum stays below 2^53. Raises BackendError if the device fails.
        """
        with _failures_named():
            a, b = (torch.from_numpy(side).to(self.device) for side in (left, right))
            return _to_host(self.multiply(a, b).to(torch.int64))

    def sums(self, blocks: Iterable[Rows], dimension: int, classes: int, *, bits: int) -> Sums:
        """Return (G, C, n) of all rows in `blocks`; see `Backend`."""
        group = (FLOAT_LIMIT - 1) // largest_code(bits) ** 2  # rows `partial` holds exactly
        block_rows = max(1, min(group, self.block_bytes // (8 * dimension)))
        with _failures_named():
            gram = self._zeros(dimension, dimension, torch.int64)
            moment = self._zeros(classes, dimension, torch.int64)
            partial = self._zeros(dimension, dimension, torch.float64)
        pending, total = 0, 0
        for codes, labels in _code_blocks(blocks, dimension, classes, bits, block_rows):
            check_bounds(total + len(labels), bits, block_rows)
            with _failures_named():
                if pending + len(labels) > group:
                    gram += partial.to(torch.int64)
                    partial.zero_()
                    pending = 0
                rows = torch.from_numpy(codes).to(self.device)
                features = rows.to(torch.float64)
                partial += self.multiply(features.T, features)
                # Integer additions: exact in whatever order the device takes them.
                owners = torch.from_numpy(labels).to(self.device)
                moment.index_add_(0, owners, rows.to(torch.int64))
            pending += len(labels)
            total += len(labels)
        with _failures_named():
            gram += partial.to(torch.int64)
            return _to_host(gram), _to_host(moment.T.contiguous()), total

    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the product of float64 matrices, computed on the device."""
        return left @ right

    def _zeros(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros((rows, columns), dtype=dtype, device=self.device)


def forbid_reduced_precision() -> None:
    """Switch TF32 and 16-bit sums off in torch, for this process.

    They affect no float64 product today: switching them off costs nothing.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_accumulation = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.allow_tf32 = False


@contextmanager
def _failures_named() -> Iterator[None]:
    """Turn torch's RuntimeError into BackendError and stop using the device."""
    try:
        yield
    except RuntimeError as error:  # out of memory, a lost device, an unsupported kernel
        backend.use(None)
        log.warning("the device failed (%s): computing on the CPU", type(error).__name__)
        raise BackendError(
            "the device ran out of memory or stopped answering: the CPU takes over"
        ) from error


def _code_blocks(
    blocks: Iterable[Rows], dimension: int, classes: int, bits: int, block_rows: int
) -> Iterator[tuple[Codes, Labels]]:
    """Yield checked (codes int16 (m, d), labels (m,)), m <= block_rows, small ones joined.

    int16 crosses the bus at a quarter of the bytes of float64. The arrays are overwritten
    at the next step. Raises RefusedError as `check_rows`.
    """
    codes = np.empty((block_rows, dimension), dtype=np.int16)
    labels = np.empty(block_rows, dtype=np.int64)
    filled = 0
    for rows in blocks:
        check_rows(rows, dimension, classes, bits)
        start = 0
        while start < len(rows):
            end = min(len(rows), start + block_rows - filled)
            part = slice(filled, filled + end - start)
            codes[part] = rows.codes[start:end]
            labels[part] = rows.labels[start:end]
            filled, start = part.stop, end
            if filled == block_rows:
                yield codes, labels
                filled = 0
    if filled:
        yield codes[:filled], labels[:filled]


def _to_host(matrix: torch.Tensor) -> IntMatrix:
    array: IntMatrix = matrix.cpu().numpy()
    return array


# Does a device multiply integers exactly? Checked at every start, before it is used.
#
# Products whose sums need all 53 bits of float64's mantissa, against NumPy's int64 products
# (which do not use BLAS). A device that computes in TF32, in float32 or in an emulation of
# float64 with fewer bits gets at least one of them wrong.
SHAPES = ((1, 1), (33, 3), (257, 7), (768, 10))  # (d, c): several kernels among them


def check_device(device: TorchBackend) -> None:
    """Raise BackendError, naming the check, unless every product is right to the last bit."""
    for name, left, right in self_test_products():
        got = device.product(left.astype(np.float64), right.astype(np.float64))
        if not np.array_equal(got, left @ right):
            raise BackendError(
                f"the device failed its self-test ({name}): compute on the CPU, or "
                "check the device"
            )
    for d, c in SHAPES:
        rows = _rows(d, c)
        gram, moment, count = device.sums([rows], d, c, bits=16)
        with using(None):
            want = accumulate([rows], d, c)
        same = np.array_equal(gram, want.gram) and np.array_equal(moment, want.moment)
        if not same or count != want.rows:
            raise BackendError(
                f"the device failed its self-test (statistics of {d} columns): compute "
                "on the CPU, or check the device"
            )


def self_test_products() -> Iterator[tuple[str, IntMatrix, IntMatrix]]:
    """Yield (name, left, right) int64; no partial sum of left @ right reaches 2^53."""
    rng = np.random.Generator(np.random.PCG64(53))
    odd = 2 * rng.integers(2**50, 2**52, (64, 96)) + 1  # all below 2^53
    yield "integers of 53 bits", np.eye(64, dtype=np.int64), odd
    # 2048 products below 2^42 each: random low bits under a sum just below 2^53.
    left = rng.integers(2**21 - 2**12, 2**21, (128, 2048))
    yield "sums close to 2^53", left, left[:96].T.copy()
    # A fixed-point emulation scales a row by its largest entry and drops what lies below.
    left, right = (rng.integers(1, 4, shape) for shape in ((96, 256), (256, 96)))
    left[:, 0], right[0] = 2**27, 2**25
    yield "units beside 2^52", left, right
    left[:, 1], right[0], right[1] = 2**27, 2**24, -(2**24)
    yield "units left by 2^51 - 2^51", left, right


def _rows(dimension: int, classes: int) -> Rows:
    """Random rows of 16 bits, half of them at the ends of the range; more than one tile."""
    rng = np.random.Generator(np.random.PCG64(dimension))
    top = largest_code(16)
    codes = rng.integers(-top, top + 1, (2051, dimension))
    codes[::2] = np.where(codes[::2] > 0, top, -top)
    return Rows(codes.astype(np.int16), rng.integers(0, classes, len(codes)))
