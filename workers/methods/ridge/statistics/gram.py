"""Exact integer statistics of a set of rows: G = QᵀQ, C = QᵀY and the number of rows.

float64 adds integers exactly while every partial sum stays below 2^53, in any order and
with any kernel, so BLAS multiplies blocks of rows and only the sums over blocks need
int64. The result depends on the multiset of rows alone: not on order, partition, block
size, threads or processor. Deleting is subtracting, bit for bit.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dgemm, dsyrk

from workers.arrays import IntMatrix, Matrix, Rows
from workers.blas_threads import threads_for
from workers.errors import ArtifactError, ExactnessError, InfeasibleRemovalError, RefusedError
from workers.methods.ridge.statistics import backend
from workers.methods.ridge.statistics.quantiser import (
    MAX_BITS,
    float_blocks,
    largest_code,
    one_hot_moment,
)


# NumPy and SciPy each bring an OpenBLAS with its own threads, which spin for a while after each
# call: alternating between the two made a triangular solve 30 times slower on two cores. LAPACK
# is SciPy's, hence so are the products.
def integer_product(left: Matrix, right: Matrix) -> IntMatrix:
    """Return left (m, k) @ right (k, n) as int64, for float64 matrices of integers.

    Exact if every partial sum stays below 2^53, which the caller must ensure.
    """
    product: Matrix = dgemm(1.0, right.T, left.T)  # (n, m) in Fortran order
    return product.T.astype(np.int64)


FLOAT_LIMIT = 2**53  # integers below it are exact in float64
INT_LIMIT = 2**63
BLOCK_ROWS = 2048  # 12.6 MB of float64 at d = 768: fits the last-level cache


@dataclass(frozen=True, slots=True, eq=False)
class RidgeStatistics:
    """gram (d, d) int64 symmetric, moment (d, c) int64, rows n; the arrays are read-only.

    In units of the quantiser's codes: multiply by the steps to get feature units.
    """

    gram: IntMatrix
    moment: IntMatrix
    rows: int

    def __post_init__(self) -> None:
        self.gram.setflags(write=False)
        self.moment.setflags(write=False)

    @property
    def dimension(self) -> int:
        """Columns of the features."""
        return int(self.moment.shape[0])

    @property
    def classes(self) -> int:
        """Columns of the one-hot targets."""
        return int(self.moment.shape[1])


def check_bounds(rows: int, bits: int = MAX_BITS, block_rows: int = BLOCK_ROWS) -> None:
    """Refuse a size at which a sum could lose a bit.

    Raises ExactnessError unless rows·q_max² < 2^63 (the int64 sums) and
    block_rows·q_max² < 2^53 (one float64 product).
    """
    square = largest_code(bits) ** 2
    if rows * square >= INT_LIMIT:
        raise ExactnessError(
            f"{rows} rows of {bits} bits overflow int64: "
            f"at most {(INT_LIMIT - 1) // square} rows, or fewer bits"
        )
    if block_rows < 1 or block_rows * square >= FLOAT_LIMIT:
        raise ExactnessError(
            f"blocks of {block_rows} rows of {bits} bits are not exact in float64: "
            f"use 1 to {(FLOAT_LIMIT - 1) // square} rows a block"
        )


def accumulate(
    blocks: Iterable[Rows],
    dimension: int,
    classes: int,
    *,
    bits: int = MAX_BITS,
    block_rows: int = BLOCK_ROWS,
) -> RidgeStatistics:
    """Return the statistics of all rows in `blocks`, whatever their order or sizes.

    Raises RefusedError for a wrong dimension, a label outside 0..classes-1 or a code
    beyond the width, ExactnessError as `check_bounds`.
    """
    check_bounds(0, bits, block_rows)
    if (summed := _sums_on_device(blocks, dimension, classes, bits)) is not None:
        return RidgeStatistics(*summed)
    gram = np.zeros((dimension, dimension), dtype=np.int64)
    moment = np.zeros((dimension, classes), dtype=np.int64)
    partial = np.zeros((dimension, dimension), order="F")  # by columns, lower triangle only
    pending, total = 0, 0
    group = (FLOAT_LIMIT - 1) // largest_code(bits) ** 2  # rows `partial` holds exactly
    for features, labels in float_blocks(blocks, dimension, classes, bits, block_rows):
        check_bounds(total + len(labels), bits, block_rows)
        if pending + len(labels) > group:
            _flush(partial, gram)
            partial[:] = 0
            pending = 0
        with threads_for(len(labels) * dimension**2):
            partial = dsyrk(1.0, features.T, beta=1.0, c=partial, lower=True, overwrite_c=True)
        moment += one_hot_moment(features, labels, classes)
        pending += len(labels)
        total += len(labels)
    if pending:
        _flush(partial, gram)
    mirror(gram)
    return RidgeStatistics(gram, moment, total)


def add(statistics: RidgeStatistics, rows: Rows, *, bits: int = MAX_BITS) -> RidgeStatistics:
    """Return the statistics with these rows as well; `statistics` is not modified.

    Allocates little more than the result. Raises as `accumulate`.
    """
    check_bounds(statistics.rows + len(rows), bits)
    return _shifted(statistics, rows, +1, bits)


def subtract(
    statistics: RidgeStatistics, rows: Rows, *, bits: int = MAX_BITS
) -> RidgeStatistics:
    """Return the statistics as if these rows had never been added.

    Takes O(k d²) for k rows and allocates less than twice the size of G. Raises
    InfeasibleRemovalError if no rows that hold these could have such statistics. Passing does
    not show the rows were learned: the record ledger must prove that.
    """
    if len(rows) > statistics.rows:
        raise InfeasibleRemovalError(
            f"{len(rows)} rows are to be forgotten, and only {statistics.rows} were "
            "learned: check the scope"
        )
    after = _shifted(statistics, rows, -1, bits)
    check_feasible(after, bits)
    return after


def merge(
    left: RidgeStatistics, right: RidgeStatistics, *, bits: int = MAX_BITS
) -> RidgeStatistics:
    """Return the statistics of both sets of rows together (one client's plus another's)."""
    if left.moment.shape != right.moment.shape:
        raise RefusedError(
            "the statistics are of different numbers of columns or classes, so of "
            "different models: join only those of one model"
        )
    check_bounds(left.rows + right.rows, bits)
    return RidgeStatistics(
        left.gram + right.gram, left.moment + right.moment, left.rows + right.rows
    )


def check_feasible(statistics: RidgeStatistics, bits: int = MAX_BITS) -> None:
    """Raise InfeasibleRemovalError if no set of rows can have these statistics.

    Necessary conditions only, O(d² ) at most: 0 <= G_jj <= n q_max², a zero column of
    features has zero products, |C_jk|² <= n G_jj, and no rows leave nothing.
    """
    diagonal = statistics.gram.diagonal()
    largest = np.maximum(statistics.moment.max(axis=1), -statistics.moment.min(axis=1))
    # Cauchy-Schwarz in float64: the slack is far above rounding and far below one row.
    reach = np.sqrt(diagonal.clip(0).astype(np.float64) * statistics.rows) * (1 + 1e-9)
    if (
        diagonal.min() < 0
        or diagonal.max() > statistics.rows * largest_code(bits) ** 2
        or statistics.gram[diagonal == 0].any()
        or (largest > reach).any()
    ):
        raise InfeasibleRemovalError(
            "the rows to forget were not all learned by this model: "
            "forget the very codes that were learned, each once"
        )


def _shifted(statistics: RidgeStatistics, rows: Rows, sign: int, bits: int) -> RidgeStatistics:
    d, c = statistics.dimension, statistics.classes
    on_device = len(rows) >= backend.WORTH_ROWS
    if on_device and (summed := _sums_on_device([rows], d, c, bits)) is not None:
        gram, moment, count = summed
        np.add(statistics.gram, np.multiply(gram, sign, out=gram), out=gram)
        np.add(statistics.moment, np.multiply(moment, sign, out=moment), out=moment)
        return RidgeStatistics(gram, moment, statistics.rows + sign * count)
    source, gram = statistics.gram, np.empty_like(statistics.gram)
    moment = statistics.moment.copy()
    panel = max(16, d // 12)  # keeps the temporaries near a tenth of G
    block_rows = min(BLOCK_ROWS, max(16, d // 4), max(1, len(rows)))
    for features, labels in float_blocks([rows], d, c, bits, block_rows):
        signed = sign * features
        with threads_for(2 * len(labels) * panel * d):
            for i in range(0, d, panel):
                product = integer_product(signed[:, i : i + panel].T, features)
                np.add(source[i : i + panel], product, out=gram[i : i + panel])
        for label in np.unique(labels):
            moment[:, label] += signed[labels == label].sum(axis=0).astype(np.int64)
        source = gram
    if source is statistics.gram:  # no rows
        gram[:] = source
    return RidgeStatistics(gram, moment, statistics.rows + sign * len(rows))


def _sums_on_device(
    blocks: Iterable[Rows], dimension: int, classes: int, bits: int
) -> "backend.Sums | None":
    """Return the sums computed on this process's device, None to use BLAS.

    Raises BackendError if the device failed after consuming an iterator: only the caller can
    start again. The device is no longer used then, so the next attempt succeeds.
    """
    device = backend.current()
    if device is None:
        return None
    try:
        return device.sums(blocks, dimension, classes, bits=bits)
    except backend.BackendError:
        if not isinstance(blocks, Sequence):
            raise
        return None


def _flush(partial: Matrix, gram: IntMatrix) -> None:
    """Add the lower triangle of `partial`, by columns, to the upper one of G, by rows."""
    d, panel = len(gram), 128  # a temporary of all of G would be as large as G
    for i in range(0, d, panel):
        gram[i : i + panel, i:] += partial.T[i : i + panel, i:].astype(np.int64)


def mirror(upper: IntMatrix | Matrix) -> None:
    """Copy the upper triangle onto the lower, in place, a panel at a time."""
    d, panel = len(upper), 64
    for i in range(0, d, panel):
        upper[i + panel :, i : i + panel] = upper[i : i + panel, i + panel :].T
        corner = upper[i : i + panel, i : i + panel]
        corner[:] = np.triu(corner) + np.triu(corner, 1).T


# The canonical bytes of statistics, all little-endian and nothing else; two parties hold the
# same statistics if and only if the digests agree:
#     magic 16 bytes · d u32 · c u32 · n u64 · bits u32 · λ f64 · exponents i32 (d)
#     · upper triangle of G by rows i64 (d(d+1)/2) · C by rows i64 (d·c)
MAGIC = b"lethe/ridge/v1\0\0"
_HEADER = struct.Struct("<16sIIQId")


def encode_statistics(
    statistics: RidgeStatistics, exponents: Sequence[int], bits: int, penalty: float
) -> bytes:
    """Return the canonical bytes of the statistics and the constants they depend on."""
    return b"".join(_parts(statistics, exponents, bits, penalty))


def statistics_digest(
    statistics: RidgeStatistics, exponents: Sequence[int], bits: int, penalty: float
) -> str:
    """Return the SHA-256 (hex) of `encode_statistics`, without holding those bytes."""
    digest = hashlib.sha256()
    for part in _parts(statistics, exponents, bits, penalty):
        digest.update(part)
    return digest.hexdigest()


def decode_statistics(data: bytes) -> tuple[RidgeStatistics, tuple[int, ...], int, float]:
    """Return (statistics, exponents, bits, penalty) of canonical bytes.

    Parses by round trip. Raises ArtifactError unless `data` is exactly what
    `encode_statistics` writes.
    """
    try:
        magic, d, c, rows, bits, penalty = _HEADER.unpack_from(data)
        triangle = d * (d + 1) // 2
        if len(data) != _HEADER.size + 4 * d + 8 * (triangle + d * c):
            raise ArtifactError("statistics have the wrong length: fetch them again")
    except struct.error:
        raise ArtifactError("statistics are cut short: fetch them again") from None
    exponents = np.frombuffer(data, "<i4", d, _HEADER.size)
    offset = _HEADER.size + 4 * d
    gram = np.zeros((d, d), dtype=np.int64)
    upper = np.triu_indices(d)
    gram[upper] = np.frombuffer(data, "<i8", triangle, offset)
    gram.T[upper] = gram[upper]
    moment = np.frombuffer(data, "<i8", d * c, offset + 8 * triangle).reshape(d, c)
    statistics = RidgeStatistics(gram, moment.astype(np.int64), rows)
    decoded = statistics, tuple(int(e) for e in exponents), bits, penalty
    if magic != MAGIC or encode_statistics(*decoded) != data:
        raise ArtifactError("these bytes are not canonical ridge statistics: fetch them again")
    return decoded


def _parts(
    statistics: RidgeStatistics, exponents: Sequence[int], bits: int, penalty: float
) -> Iterator[bytes]:
    d, c = statistics.dimension, statistics.classes
    yield _HEADER.pack(MAGIC, d, c, statistics.rows, bits, penalty)
    yield np.array(exponents, dtype="<i4").tobytes()
    for i in range(d):
        yield statistics.gram[i, i:].astype("<i8").tobytes()
    yield statistics.moment.astype("<i8").tobytes()
