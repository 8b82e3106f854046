"""Features to integers, so that every later sum over rows is exact, and checked blocks of them.

q_j = clip(rint(φ_j / Δ_j), ±q_max) with Δ_j = 2**exponents[j]. Dividing by a power of two
is exact, so a feature has one code on every machine.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from workers.arrays import Codes, IntMatrix, Labels, Matrix, Rows
from workers.errors import RefusedError

MIN_BITS, MAX_BITS = 8, 16
# Steps far outside float32's own range mean a broken extractor, and the squares of the
# steps must stay clear of float64's limits in every later product.
MAX_EXPONENT = 160
BLOCK_ROWS = 4096  # bounds the float64 copy of the features, not the result

Features = NDArray[np.floating[Any]]


def largest_code(bits: int) -> int:
    """Return q_max = 2**(bits-1) - 1. Raises RefusedError outside 8 to 16 bits."""
    if not MIN_BITS <= bits <= MAX_BITS:
        raise RefusedError(f"{bits} bits: choose {MIN_BITS} to {MAX_BITS}")
    return int(2 ** (bits - 1) - 1)


@dataclass(frozen=True, slots=True)
class Quantiser:
    """Power-of-two steps, one exponent for each column, and a width in bits.

    Choose it once, from rows that nobody may erase: a step fitted to data that is later
    forgotten would leave that data in the model.
    """

    exponents: tuple[int, ...]
    bits: int = MAX_BITS

    def __post_init__(self) -> None:
        largest_code(self.bits)
        if not self.exponents:
            raise RefusedError("exponents: give one for each column, at least one")
        if any(abs(exponent) > MAX_EXPONENT for exponent in self.exponents):
            raise RefusedError(
                f"exponents: must lie between -{MAX_EXPONENT} and {MAX_EXPONENT}: "
                "rescale the features"
            )

    @property
    def q_max(self) -> int:
        """The largest code; the smallest is its negative."""
        return largest_code(self.bits)

    def quantise(self, features: Features) -> tuple[Codes, int]:
        """Return the codes (n, d) of features (n, d) and how many of them were clipped.

        Raises RefusedError on NaN, infinity or a wrong number of columns.
        """
        if features.ndim != 2 or features.shape[1] != len(self.exponents):
            raise RefusedError(
                f"features must have {len(self.exponents)} columns: "
                "use the extractor the model was registered with"
            )
        inverse_steps = np.ldexp(1.0, -np.array(self.exponents))
        codes = np.empty(features.shape, dtype=np.int16)
        saturated = 0
        for start in range(0, len(features), BLOCK_ROWS):
            block = features[start : start + BLOCK_ROWS].astype(np.float64)
            if not np.isfinite(block).all():
                raise RefusedError("features hold NaN or infinity: repair or drop the rows")
            # A step of 2^-160 may take a large float64 to infinity: it saturates, as it must.
            with np.errstate(over="ignore"):
                block *= inverse_steps
            np.rint(block, out=block)
            saturated += int(np.count_nonzero(np.abs(block) > self.q_max))
            codes[start : start + BLOCK_ROWS] = np.clip(block, -self.q_max, self.q_max)
        return codes, saturated


def calibrate(public: Features, bits: int = MAX_BITS, headroom: float = 2.0) -> Quantiser:
    """Return the finest steps at which `public` (n, d) stays below q_max / headroom.

    `public` must be rows that can never be erased. A column that is zero throughout gets the
    step of the largest column, since it may be non-zero in training. Raises RefusedError on
    NaN, infinity, no rows, or headroom below 1.
    """
    if public.ndim != 2 or 0 in public.shape:
        raise RefusedError("calibration needs at least one public row and one column")
    if not 1.0 <= headroom < float("inf"):
        raise RefusedError("headroom must be at least 1")
    peaks = np.abs(public.astype(np.float64)).max(axis=0)
    if not np.isfinite(peaks).all():
        raise RefusedError("calibration features hold NaN or infinity: repair them")
    q_max = largest_code(bits)
    peaks[peaks == 0] = peaks.max()
    return Quantiser(tuple(_step(float(p), q_max / headroom) for p in peaks), bits)


def _step(peak: float, room: float) -> int:
    """Return the least e with peak <= room·2^e (0 for a peak of 0)."""
    mantissa, exponent = frexp(peak)
    room_mantissa, room_exponent = frexp(room)
    return 0 if peak == 0 else exponent - room_exponent + (mantissa > room_mantissa)


def float_blocks(
    blocks: Iterable[Rows], dimension: int, classes: int, bits: int, block_rows: int
) -> Iterator[tuple[Matrix, IntMatrix]]:
    """Yield checked (features float64 (m, d), labels (m,)), m <= block_rows.

    Small blocks are joined. The arrays are overwritten at the next step. Raises RefusedError
    for a wrong width, a code beyond the bits or a foreign label.
    """
    features = np.empty((block_rows, dimension))
    labels = np.empty(block_rows, dtype=np.int64)
    filled = 0
    for rows in blocks:
        _check_width(rows, dimension)
        start = 0
        while start < len(rows):
            end = min(len(rows), start + block_rows - filled)
            part = slice(filled, filled + end - start)
            features[part] = _checked_codes(rows.codes[start:end], bits)
            labels[part] = _checked_labels(rows.labels[start:end], classes)
            filled, start = part.stop, end
            if filled == block_rows:
                yield features, labels
                filled = 0
    if filled:
        yield features[:filled], labels[:filled]


def check_rows(rows: Rows, dimension: int, classes: int, bits: int) -> None:
    """Raise RefusedError for what `float_blocks` refuses."""
    _check_width(rows, dimension)
    if len(rows):
        _checked_codes(rows.codes, bits)
        _checked_labels(rows.labels, classes)


def one_hot_moment(features: Matrix, labels: IntMatrix, classes: int) -> IntMatrix:
    """QᵀY (d, c) of one-hot labels, exact: a sum of at most block_rows codes."""
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(classes + 1))
    picks = csr_array((np.ones(len(labels)), order, ends), shape=(classes, len(labels)))
    moment: IntMatrix = (picks @ features).astype(np.int64).T
    return moment


def _check_width(rows: Rows, dimension: int) -> None:
    if rows.codes.shape[1] != dimension:
        raise RefusedError(
            f"rows have {rows.codes.shape[1]} columns, the model {dimension}: "
            "use the extractor the model was registered with"
        )


def _checked_codes(codes: Codes, bits: int) -> Codes:
    q_max = largest_code(bits)
    if int(codes.max()) > q_max or int(codes.min()) < -q_max:
        raise RefusedError(f"a code exceeds {bits} bits: quantise with this model's steps")
    return codes


def _checked_labels(labels: Labels, classes: int) -> Labels:
    if labels.min() < 0 or labels.max() >= classes:
        raise RefusedError(f"a label lies outside 0..{classes - 1}: check the classes")
    return labels
