"""Check 1: the published statistics are those of the retained rows.

Recomputed from the rows alone and by other means than they were made with: last rows first,
by another BLAS (NumPy's, not SciPy's), and of other numbers. Each code is raised by 2^15, so
that none is negative, and what that adds is taken off the sums: for q = u - a and s = Σ q,

    Σ q qᵀ = Σ u uᵀ - a(s 1ᵀ + 1 sᵀ) - n a² 1 1ᵀ.

Products of 16-bit numbers are exact in float64 up to 2^21 rows at a time. Equal digests then
mean equal integers.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
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
    """gram (d, d), moment (d, c) int64 and the number of retained rows."""

    gram: IntMatrix
    moment: IntMatrix
    rows: int


class UnusableRowsError(ValueError):
    """Rows that no ridge head of this shape can have been trained on."""


def check_statistics(
    claim: RidgeClaim, rows: Sequence[Rows]
) -> tuple[Judgement, Recomputed | None]:
    """Return the judgement, and the statistics for the checks that build on them."""
    try:
        recomputed = recompute(rows, claim.dimension, claim.classes, claim.bits)
        digest = digest_of(recomputed, claim.exponents, claim.bits, claim.penalty)
    except UnusableRowsError as reason:
        return judged(SPEC, str(reason), passed=False), None
    passed = digest == claim.statistics_digest
    return judged(SPEC, digest, passed=passed), recomputed


def recompute(rows: Sequence[Rows], dimension: int, classes: int, bits: int) -> Recomputed:
    """Return the statistics of all rows. Raises UnusableRowsError."""
    check_constants(dimension, classes, bits)
    gram = np.zeros((dimension, dimension), dtype=np.int64)
    moment = np.zeros((dimension, classes), dtype=np.int64)
    count = 0
    for codes, labels in _chunks(rows, dimension):
        check_values(codes, labels, classes, bits)
        count += len(codes)
        _add_moment(moment, codes, labels)
        gram += _raised_products(codes)
    sums = moment.sum(axis=1)  # each row has one class
    gram -= RAISED * (sums[:, None] + sums + count * RAISED)
    return Recomputed(gram, moment, count)


def check_constants(dimension: int, classes: int, bits: int) -> None:
    """Raise UnusableRowsError for constants that no ridge head can be registered with."""
    if not 8 <= bits <= 16 or dimension < 1 or classes < 1:
        raise UnusableRowsError("the registered constants are out of range")


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


def _chunks(rows: Sequence[Rows], dimension: int) -> Iterator[tuple[Codes, Labels]]:
    """Yield at most CHUNK rows at a time, last blocks first, small blocks together."""
    codes = np.empty((CHUNK, dimension), dtype=np.int16)
    labels = np.empty(CHUNK, dtype=np.int64)
    filled = 0
    for block in reversed(rows):
        if block.codes.shape[1] != dimension:
            raise UnusableRowsError("a row has the wrong number of columns")
        end = len(block)
        while end > 0:
            start = max(0, end - (CHUNK - filled))
            codes[filled : filled + end - start] = block.codes[start:end]
            labels[filled : filled + end - start] = block.labels[start:end]
            filled, end = filled + end - start, start
            if filled == CHUNK:
                yield codes, labels
                filled = 0
    if filled:
        yield codes[:filled], labels[:filled]


def _raised_products(codes: Codes) -> IntMatrix:
    """Return uᵀu for u = codes + 2^15, of which each is from 1 to 2^16 - 1."""
    raised = codes.astype(np.float64)
    raised += RAISED
    with threads_for(codes.size * codes.shape[1]):  # NumPy sees the symmetry
        products: IntMatrix = (raised.T @ raised).astype(np.int64)
    return products


def _add_moment(moment: IntMatrix, codes: Codes, labels: Labels) -> None:
    """Add to each class's column the sum of that class's codes."""
    for label in np.unique(labels):
        moment[:, label] += codes[labels == label].sum(axis=0, dtype=np.int64)
