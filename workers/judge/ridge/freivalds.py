"""Check 1 without the O(nd²): claimed statistics are put to a random test in O(nd).

For rows q_i with one-hot labels y_i, every pair of vectors r (d,), t (c,) satisfies

    Σ_i (q_i·r + y_i·t)² = rᵀGr + 2 rᵀCt + tᵀNt,      N = diag(rows in each class).

This is Freivalds' test as a quadratic form: it reads the rows once, where Qᵀ(Qr) = Gr reads
them twice, and covers G and C together. If G (symmetric) or C is wrong in a single entry,
the two sides differ as polynomials of degree 2 in (r, t); modulo an odd prime p that does
not divide every error, they agree at uniformly random (r, t) with probability at most
2/p (Schwartz 1980, Zippel 1979; for r alone, Freivalds 1977). Errors are below 2^64, so
none is a multiple of both primes, and wrong statistics pass k rounds with probability at
most (2/(2^61 - 31))^k, about 2^-60 for each round (2^-120 unless all errors are multiples
of one prime). This holds for statistics fixed before (r, t) could be known.

Numbers modulo p are cut into three limbs of 21 bits, so float64 products of limbs are exact.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CHECKS
from workers.arrays import IntMatrix, Matrix, Rows
from workers.blas_threads import threads_for
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.ridge.claim import ClaimedStatistics, RidgeClaim
from workers.judge.ridge.head import decimal_above
from workers.judge.ridge.integers import exact_product
from workers.judge.ridge.statistics import (
    Recomputed,
    UnusableRowsError,
    check_constants,
    check_values,
    digest_of,
)

SPEC = CHECKS["statistics-freivalds"]

# A Mersenne and a pseudo-Mersenne prime 2^61 - k: 2^61 is k modulo it.
GAPS = (1, 31)
PRIMES = tuple(2**61 - gap for gap in GAPS)
LIMB, LIMBS = 21, 3
MASK = 2**LIMB - 1
MAX_DIMENSION = 2**16  # d·2^15·2^21 <= 2^52: the sums of one row's limbs are exact
MAX_ROUNDS = 16
MIN_SEED = 16  # bytes
GROUP, BLOCK, SQUARES = 4096, 512, 2048  # SQUARES·2^42 <= 2^53


@dataclass(frozen=True, slots=True, eq=False)
class Challenge:
    """K random vectors (r; t), each modulo 2^61 - gap.

    features (d, K) and classes (c, K) int64, not negative, below the prime; gaps (K,).
    """

    features: IntMatrix
    classes: IntMatrix
    gaps: NDArray[np.int64]

    @property
    def primes(self) -> list[int]:
        """The modulus of each column."""
        return [2**61 - int(gap) for gap in self.gaps]


def draw(seed: bytes, digest: str, dimension: int, classes: int, rounds: int) -> Challenge:
    """Expand `seed` for the statistics of one digest: one column a round and prime.

    128 bits of SHAKE-256 modulo p are uniform but for a factor 1 ± 2^-67.
    """
    size, columns = dimension + classes, rounds * len(GAPS)
    label = b"lethe/freivalds/v1\0" + len(seed).to_bytes(4, "big") + seed
    stream = hashlib.shake_256(label + digest.encode("ascii")).digest(16 * size * columns)
    wide = [int.from_bytes(stream[i : i + 16], "big") for i in range(0, len(stream), 16)]
    primes = PRIMES * (size * rounds)
    values = np.array([x % p for x, p in zip(wide, primes, strict=True)], dtype=np.int64)
    values = values.reshape(size, columns)
    return Challenge(values[:dimension], values[dimension:], np.array(GAPS * rounds))


def answer_of_rows(rows: Sequence[Rows], challenge: Challenge, bits: int) -> list[int]:
    """Return Σ_i (q_i·r + y_i·t)² - tᵀNt modulo each prime, (K,). Raises UnusableRowsError."""
    dimension, classes = len(challenge.features), len(challenge.classes)
    limbs = np.hstack(list(_limbs(challenge.features)))

    def one(group: list[Rows]) -> tuple[list[int], NDArray[np.int64]]:
        codes = (
            np.concatenate([block.codes for block in group]) if group[1:] else group[0].codes
        )
        labels = np.concatenate([block.labels for block in group])
        check_values(codes, labels, classes, bits)
        products = np.empty((len(codes), limbs.shape[1]))
        for start in range(0, len(codes), BLOCK):
            wide = codes[start : start + BLOCK].astype(np.float64)
            np.matmul(wide, limbs, out=products[start : start + BLOCK])
        values = _joined(products.astype(np.int64), challenge.gaps)
        values = (values + challenge.classes[labels]) % (2**61 - challenge.gaps)
        return _squares(values), np.bincount(labels, minlength=classes)

    totals = [0] * len(challenge.gaps)
    counts = np.zeros(classes, dtype=np.int64)
    # One BLAS thread for each of ours: its own would spin on products this thin.
    with threads_for(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        for squares, count in pool.map(one, _groups(rows, dimension)):
            totals = [total + square for total, square in zip(totals, squares, strict=True)]
            counts += count
    for column, prime in enumerate(challenge.primes):
        labelled = zip(counts.tolist(), challenge.classes[:, column].tolist(), strict=True)
        totals[column] = (totals[column] - sum(n * t * t for n, t in labelled)) % prime
    return totals


def answer_of_claim(claimed: ClaimedStatistics, challenge: Challenge) -> list[int]:
    """Return rᵀGr + 2 rᵀCt modulo each prime, (K,), for symmetric G."""
    image = exact_product(claimed.gram, challenge.features)
    image = image + 2 * exact_product(claimed.moment, challenge.classes)
    totals = (image * challenge.features).sum(axis=0).tolist()
    return [int(total) % p for total, p in zip(totals, challenge.primes, strict=True)]


def error_probability(rounds: int) -> Fraction:
    """Return a number no less than the probability that wrong statistics pass.

    The factor covers how far `draw` is from uniform: four values of one part in 2^67.
    """
    return (Fraction(2, PRIMES[1]) * (1 + Fraction(1, 2**60))) ** rounds


def check_claimed(
    claim: RidgeClaim, rows: Sequence[Rows]
) -> tuple[Judgement, Recomputed | None]:
    """Judge the claimed statistics, and return them if they passed."""
    claimed = claim.statistics
    missing = None
    if claimed is None:
        missing = "the statistics are missing"
    elif claim.seed is None or len(claim.seed) < MIN_SEED:
        missing = "no seed of 16 bytes or more was drawn after the result was committed"
    if missing is not None or claimed is None or claim.seed is None:
        return judged(SPEC, f"{missing}", passed=False, undecided=True), None
    try:
        digest = _commitment(claim, claimed, rows)
        challenge = draw(claim.seed, digest, claim.dimension, claim.classes, claim.rounds)
        if answer_of_rows(rows, challenge, claim.bits) != answer_of_claim(claimed, challenge):
            raise UnusableRowsError("the statistics are not those of the retained rows")
    except UnusableRowsError as reason:
        return judged(SPEC, str(reason), passed=False), None
    chance = decimal_above(error_probability(claim.rounds))
    value = f"{digest}; wrong statistics pass with probability at most {chance}"
    judgement = judged(SPEC, value, passed=True, interval=("0", chance))
    return judgement, Recomputed(claimed.gram, claimed.moment, claimed.rows)


def malformed(claimed: ClaimedStatistics, dimension: int, classes: int) -> str | None:
    """Name what keeps `claimed` from being statistics of this shape, or None."""
    if claimed.gram.dtype != np.int64 or claimed.gram.shape != (dimension, dimension):
        return "the claimed Gram matrix has another shape or type"
    if claimed.moment.dtype != np.int64 or claimed.moment.shape != (dimension, classes):
        return "the claimed moment has another shape or type"
    if not np.array_equal(claimed.gram, claimed.gram.T):
        return "the claimed Gram matrix is not symmetric"
    return None


def _commitment(claim: RidgeClaim, claimed: ClaimedStatistics, rows: Sequence[Rows]) -> str:
    """Return the digest of `claimed` once everything but its numbers is found right."""
    check_constants(claim.dimension, claim.classes, claim.bits)
    if claim.dimension > MAX_DIMENSION or not 1 <= claim.rounds <= MAX_ROUNDS:
        raise UnusableRowsError("the dimension or the rounds are out of range")
    problem = malformed(claimed, claim.dimension, claim.classes)
    if problem is not None:
        raise UnusableRowsError(problem)
    if claimed.rows != sum(len(block) for block in rows):
        raise UnusableRowsError("the claimed number of rows is not the number stored")
    recomputed = Recomputed(claimed.gram, claimed.moment, claimed.rows)
    digest = digest_of(recomputed, claim.exponents, claim.bits, claim.penalty)
    if digest != claim.statistics_digest:
        raise UnusableRowsError("the statistics are not those of the published digest")
    return digest


def _groups(rows: Sequence[Rows], dimension: int) -> Iterator[list[Rows]]:
    """Yield the rows in order, GROUP at most at a time, small blocks together."""
    group: list[Rows] = []
    room = GROUP
    for block in rows:
        if block.codes.shape[1] != dimension:
            raise UnusableRowsError("a row has the wrong number of columns")
        start = 0
        while start < len(block):
            stop = min(len(block), start + room)
            group.append(Rows(block.codes[start:stop], block.labels[start:stop]))
            room -= stop - start
            start = stop
            if room == 0:
                yield group
                group, room = [], GROUP
    if group:
        yield group


def _limbs(values: IntMatrix) -> Iterator[Matrix]:
    """Yield the three limbs of numbers below 2^61, lowest first."""
    for place in range(LIMBS):
        yield ((values >> (LIMB * place)) & MASK).astype(np.float64)


def _joined(sums: IntMatrix, gaps: NDArray[np.int64]) -> IntMatrix:
    """Return Σ_i sums_i·2^(21 i) modulo each prime (m, K), for (m, 3K) limbs below 2^53."""
    low, middle, high = np.split(sums, LIMBS, axis=1)
    primes = 2**61 - gaps
    value: IntMatrix = high % primes
    for limb in (middle, low):
        # 2^21·v = 2^61·(v >> 40) + 2^21·(v mod 2^40), all below 2^62
        above, below = value >> (61 - LIMB), value & (2 ** (61 - LIMB) - 1)
        value = (above * gaps + (below << LIMB) + limb) % primes
    return value


def _squares(values: IntMatrix) -> list[int]:
    """Return Σ_i values[i, k]² for each column k, exactly."""
    totals = [0] * values.shape[1]
    for start in range(0, len(values), SQUARES):
        # (K, 3, m): one small Gram matrix of limbs for each column
        limbs = np.stack([limb.T for limb in _limbs(values[start : start + SQUARES])], axis=1)
        for column, gram in enumerate((limbs @ limbs.transpose(0, 2, 1)).tolist()):
            totals[column] += sum(
                int(gram[i][j]) << (LIMB * (i + j)) for i in range(LIMBS) for j in range(LIMBS)
            )
    return totals
