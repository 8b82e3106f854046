"""The canonical bytes of ridge statistics, and their SHA-256.

    magic 16 bytes · d u32 · c u32 · n u64 · bits u32 · λ f64 · exponents i32 (d)
    · upper triangle of G by rows i64 (d(d+1)/2) · C by rows i64 (d·c)

all little-endian, nothing else. Two parties hold the same statistics if and only if the
digests agree.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from workers.errors import ArtifactError
from workers.methods.ridge.statistics.gram import RidgeStatistics

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
        raise ArtifactError("these bytes are not canonical ridge statistics")
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
