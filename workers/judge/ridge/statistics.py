"""Check 1: the published statistics are those of the retained rows.

Recomputed from the rows alone and by other means than the method's: with another BLAS (NumPy's,
not SciPy's), and other numbers. Each code is shifted by a = 2^15, so that none is negative, and
the shift is subtracted from the sums: for q = u - a and s = Σ q,

    Σ q qᵀ = Σ u uᵀ - a(s 1ᵀ + 1 sᵀ) - n a² 1 1ᵀ.

Products of 16-bit numbers are exact in float64 up to 2^21 rows at a time. Equal digests then
mean equal integers.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.catalogue import CHECKS
from workers.arrays import Codes, IntMatrix, Labels, Rows
from workers.blas_threads import threads_for
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.ridge.claim import RidgeClaim

SPEC = CHECKS["statistics-recomputed"]
CHUNK = 2048  # rows multiplied at a time: 12.6 MB of float64 at d = 768
RAISED = 2**15


@dataclass(frozen=True, slots=True, eq=False)
class Recomputed:
    """gram (d, d), moment (d, c) int64 and the number of retained rows.

    definite: whether G has no negative eigenvalue, as that of rows. Of sums of unseen rows it
    is known only to have none below -λ/2 (`head.convexity`).
    """

    gram: IntMatrix
    moment: IntMatrix
    rows: int
    definite: bool = True


class UnusableRowsError(ValueError):
    """Rows that no ridge head of this shape can have been trained on."""


class Recomputing:
    """Check 1 by recomputation: `take` the retained rows in any order, then `judge`."""

    def __init__(self, claim: RidgeClaim) -> None:
        """Start without rows. All methods raise UnusableRowsError."""
        self._claim = claim
        self._sum = Summing(claim.dimension, claim.classes, claim.bits)

    def take(self, rows: Rows) -> None:
        """Add rows."""
        self._sum.take(rows)

    def judge(self) -> tuple[Judgement, Recomputed | None]:
        """Return the judgement, and the statistics for later checks."""
        claim, found = self._claim, self._sum.result()
        digest = digest_of(found, claim.exponents, claim.bits, claim.penalty)
        return judged(SPEC, digest, passed=digest == claim.statistics_digest), found


def recompute(rows: Iterable[Rows], dimension: int, classes: int, bits: int) -> Recomputed:
    """Return the statistics of all rows. Raises UnusableRowsError."""
    summing = Summing(dimension, classes, bits)
    for block in rows:
        summing.take(block)
    return summing.result()


class Summing:
    """Sums the statistics of rows, CHUNK at a time, small blocks together."""

    def __init__(self, dimension: int, classes: int, bits: int) -> None:
        """Start without rows. Raises UnusableRowsError."""
        check_constants(dimension, classes, bits)
        self._gram = np.zeros((dimension, dimension), dtype=np.int64)
        self._moment = np.zeros((dimension, classes), dtype=np.int64)
        self._bits, self._count, self._filled = bits, 0, 0
        self._codes = np.empty((CHUNK, dimension), dtype=np.int16)
        self._labels = np.empty(CHUNK, dtype=np.int64)

    def take(self, rows: Rows) -> None:
        """Add rows. Raises UnusableRowsError."""
        if rows.codes.shape[1] != len(self._gram):
            raise UnusableRowsError("a row has the wrong number of columns")
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + CHUNK - self._filled)
            end = self._filled + stop - start
            self._codes[self._filled : end] = rows.codes[start:stop]
            self._labels[self._filled : end] = rows.labels[start:stop]
            start, self._filled = stop, end
            if end == CHUNK:
                self._flush()

    def result(self) -> Recomputed:
        """Return the statistics of all rows taken. Raises UnusableRowsError."""
        if self._filled:
            self._flush()
        sums = self._moment.sum(axis=1)  # each row has one class
        gram = self._gram - RAISED * (sums[:, None] + sums + self._count * RAISED)
        return Recomputed(gram, self._moment, self._count)

    def _flush(self) -> None:
        codes, labels = self._codes[: self._filled], self._labels[: self._filled]
        check_values(codes, labels, self._moment.shape[1], self._bits)
        _add_moment(self._moment, codes, labels)
        self._gram += _raised_products(codes)
        self._count, self._filled = self._count + self._filled, 0


def check_constants(dimension: int, classes: int, bits: int) -> None:
    """Raise UnusableRowsError for constants that no ridge head can be registered with."""
    if not 8 <= bits <= 16 or dimension < 1 or classes < 1:
        raise UnusableRowsError("the registered constants are out of range")


def check_possible(found: Recomputed, bits: int) -> None:
    """Raise UnusableRowsError for a sum of statistics that no rows of so many bits have.

    Not needed if the rows are here. The check of the head depends on it: a column that is 0 in
    all rows has the weight 0, because its moment is 0 too.
    """
    largest = 2 ** (bits - 1) - 1
    for entries, most in ((found.gram, largest**2), (found.moment, largest)):
        if max(int(entries.max()), -int(entries.min())) > found.rows * most:
            raise UnusableRowsError("the sum has larger entries than its rows can have")
    silent = found.gram.diagonal() == 0
    if found.gram[silent].any() or found.moment[silent].any():
        raise UnusableRowsError("a column of the sum is 0 in all rows, and not beside them")


def check_values(codes: Codes, labels: Labels, classes: int, bits: int) -> None:
    """Raise UnusableRowsError for rows (at least one) outside the registered ranges."""
    if max(int(codes.max()), -int(codes.min())) > 2 ** (bits - 1) - 1:
        raise UnusableRowsError(f"a code exceeds {bits} bits")
    if labels.min() < 0 or labels.max() >= classes:
        raise UnusableRowsError("a label lies outside the classes")


def digest_of(
    statistics: Recomputed, exponents: Sequence[int], bits: int, penalty: float
) -> str:
    """Return the SHA-256 (hex) of the canonical encoding, written out independently.

    magic 16s, d u32, c u32, n u64, bits u32, λ f64, e i32 (d), G upper by rows i64, C i64.
    """
    d, c = statistics.moment.shape
    if len(exponents) != d or any(abs(e) > 2**15 for e in exponents):
        raise UnusableRowsError("the registered steps are out of range")
    upper = np.triu(np.ones((d, d), dtype=bool))
    digest = hashlib.sha256(b"lethe/ridge/v1".ljust(16, b"\0"))
    digest.update(struct.pack("<IIQId", d, c, statistics.rows, bits, penalty))
    digest.update(struct.pack(f"<{d}i", *exponents))
    digest.update(statistics.gram[upper].astype("<i8").tobytes())
    digest.update(statistics.moment.astype("<i8").tobytes())
    return digest.hexdigest()


def _raised_products(codes: Codes) -> IntMatrix:
    """Return uᵀu for u = codes + 2^15, each from 1 to 2^16 - 1."""
    raised = codes.astype(np.float64)
    raised += RAISED
    with threads_for(codes.size * codes.shape[1]):  # NumPy exploits the symmetry
        products: IntMatrix = (raised.T @ raised).astype(np.int64)
    return products


def _add_moment(moment: IntMatrix, codes: Codes, labels: Labels) -> None:
    """Add to each class's column the sum of that class's codes."""
    for label in np.unique(labels):
        moment[:, label] += codes[labels == label].sum(axis=0, dtype=np.int64)
