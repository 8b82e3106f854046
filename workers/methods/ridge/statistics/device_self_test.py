"""Does a device multiply integers exactly? Checked at every start, before it is used.

Products whose sums need all 53 bits of float64's mantissa, against NumPy's int64 products
(which do not use BLAS). A device that computes in TF32, in float32 or in an emulation of
float64 with fewer bits gets at least one of them wrong.
"""

from collections.abc import Iterator

import numpy as np

from workers.arrays import IntMatrix, Rows
from workers.methods.ridge.statistics.backend import BackendError, using
from workers.methods.ridge.statistics.gram import accumulate
from workers.methods.ridge.statistics.quantiser import largest_code
from workers.methods.ridge.statistics.torch_backend import TorchBackend

SHAPES = ((1, 1), (33, 3), (257, 7), (768, 10))  # (d, c): several kernels among them


def check_device(device: TorchBackend) -> None:
    """Raise BackendError, naming the check, unless every product is right to the last bit."""
    for name, left, right in self_test_products():
        got = device.product(left.astype(np.float64), right.astype(np.float64))
        if not np.array_equal(got, left @ right):
            raise BackendError(f"the device failed its self-test: {name}")
    for d, c in SHAPES:
        rows = _rows(d, c)
        gram, moment, count = device.sums([rows], d, c, bits=16)
        with using(None):
            want = accumulate([rows], d, c)
        same = np.array_equal(gram, want.gram) and np.array_equal(moment, want.moment)
        if not same or count != want.rows:
            raise BackendError(f"the device failed its self-test: statistics of {d} columns")


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
