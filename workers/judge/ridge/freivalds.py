"""Check 1 without the O(nd²): claimed statistics are put to a random test in O(nd).

For rows q_i with one-hot labels y_i, every pair of vectors r (d,), t (c,) satisfies

    Σ_i (q_i·r + y_i·t)² = rᵀGr + 2 rᵀCt + tᵀNt,      N = diag(rows in each class).

This is Freivalds' test as a quadratic form: it reads the rows once, where Qᵀ(Qr) = Gr reads
them twice, and covers G and C together. If G (symmetric) or C is wrong in a single entry, the
two sides differ as polynomials of degree 2 in (r, t); modulo an odd prime p that does not
divide every error, they agree at uniformly random (r, t) with probability at most 2/p (Schwartz
1980, Zippel 1979; for r alone, Freivalds 1977). Errors are below 2^64, so none is a multiple of
both primes, and wrong statistics pass k rounds with probability at most (2/(2^61 - 31))^k,
about 2^-60 for each round (2^-120 unless all errors are multiples of one prime). This requires
that the statistics were fixed before (r, t) could be known.

Numbers modulo p are split into three limbs of 21 bits, so float64 products of limbs are exact.
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
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
from workers.judge.ridge.residual import exact_product
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
SUFFICIENT = Fraction(1, 2**59)  # probability that wrong statistics pass
MOST_PENDING = 8  # groups of rows in memory at once
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
    """Expand `seed` for the statistics of one digest: one column per round and prime.

    128 bits of SHAKE-256 modulo p are uniform except for a factor 1 ± 2^-67.
    """
    size, columns = dimension + classes, rounds * len(GAPS)
    label = b"lethe/freivalds/v1\0" + len(seed).to_bytes(4, "big") + seed
    stream = hashlib.shake_256(label + digest.encode("ascii")).digest(16 * size * columns)
    wide = [int.from_bytes(stream[i : i + 16], "big") for i in range(0, len(stream), 16)]
    primes = PRIMES * (size * rounds)
    values = np.array([x % p for x, p in zip(wide, primes, strict=True)], dtype=np.int64)
    values = values.reshape(size, columns)
    return Challenge(values[:dimension], values[dimension:], np.array(GAPS * rounds))


class Answering:
    """Computes Σ_i (q_i·r + y_i·t)² - tᵀNt modulo each prime over rows, given in any order.

    A pool of threads computes while the caller reads the next rows: close it with `result`, or
    by leaving its context.
    """

    def __init__(self, challenge: Challenge, bits: int) -> None:
        self.challenge, self._bits = challenge, bits
        self._limbs = np.hstack(list(_limbs(challenge.features)))
        self._group: list[Rows] = []
        self._room = GROUP
        self._totals = [0] * len(challenge.gaps)
        self._counts = np.zeros(len(challenge.classes), dtype=np.int64)
        self.rows = 0
        self._pending: deque[Future[tuple[list[int], NDArray[np.int64]]]] = deque()
        self._stack = ExitStack()
        # One BLAS thread per thread of ours: more would spin on products this thin.
        self._stack.enter_context(threads_for(1))
        self._pool = self._stack.enter_context(ThreadPoolExecutor(os.cpu_count()))

    def __enter__(self) -> "Answering":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pending(self) -> int:
        """Number of groups of rows in memory that wait or are computed on."""
        return len(self._pending)

    def take(self, rows: Rows) -> None:
        """Add rows, small blocks together. Raises UnusableRowsError."""
        if rows.codes.shape[1] != len(self.challenge.features):
            raise UnusableRowsError("a row has the wrong number of columns")
        self.rows += len(rows)
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + self._room)
            self._group.append(Rows(rows.codes[start:stop], rows.labels[start:stop]))
            self._room -= stop - start
            start = stop
            if self._room == 0:
                self._submit()

    def result(self) -> list[int]:
        """Return the answers (K,) of all rows taken. Raises UnusableRowsError."""
        with self:
            if self._group:
                self._submit()
            while self._pending:
                self._collect()
        totals, classes = self._totals, self.challenge.classes
        for column, prime in enumerate(self.challenge.primes):
            labelled = zip(self._counts.tolist(), classes[:, column].tolist(), strict=True)
            totals[column] = (totals[column] - sum(n * t * t for n, t in labelled)) % prime
        return totals

    def _submit(self) -> None:
        self._pending.append(self._pool.submit(self._answer, self._group))
        self._group, self._room = [], GROUP
        if len(self._pending) > MOST_PENDING:
            self._collect()

    def _collect(self) -> None:
        squares, counts = self._pending.popleft().result()
        self._totals = [sum(pair) for pair in zip(self._totals, squares, strict=True)]
        self._counts += counts

    def _answer(self, group: Sequence[Rows]) -> tuple[list[int], NDArray[np.int64]]:
        challenge = self.challenge
        classes = len(challenge.classes)
        codes = np.concatenate([one.codes for one in group])
        labels = np.concatenate([one.labels for one in group])
        check_values(codes, labels, classes, self._bits)
        products = np.empty((len(codes), self._limbs.shape[1]))
        for start in range(0, len(codes), BLOCK):
            wide = codes[start : start + BLOCK].astype(np.float64)
            np.matmul(wide, self._limbs, out=products[start : start + BLOCK])
        values = joined(products.astype(np.int64), challenge.gaps)
        values = (values + challenge.classes[labels]) % (2**61 - challenge.gaps)
        return _squares(values), np.bincount(labels, minlength=classes)


def answer_of_claim(claimed: ClaimedStatistics, challenge: Challenge) -> list[int]:
    """Return rᵀGr + 2 rᵀCt modulo each prime, (K,), for symmetric G."""
    image = exact_product(claimed.gram, challenge.features)
    image = image + 2 * exact_product(claimed.moment, challenge.classes)
    totals = (image * challenge.features).sum(axis=0).tolist()
    return [int(total) % p for total, p in zip(totals, challenge.primes, strict=True)]


def error_probability(rounds: int) -> Fraction:
    """Return an upper bound of the probability that wrong statistics pass.

    The factor covers how far `draw` is from uniform: four values of one part in 2^67.
    """
    return (Fraction(2, PRIMES[1]) * (1 + Fraction(1, 2**60))) ** rounds


class Testing:
    """Check 1 by the random test: `take` the retained rows in any order, then `judge`."""

    def __init__(self, claim: RidgeClaim) -> None:
        """Start without rows. All methods raise UnusableRowsError."""
        self._claim, self._digest = claim, ""
        self._answering: Answering | None = None
        self._missing = None
        if claim.statistics is None:
            self._missing = "the statistics are missing"
        elif claim.seed is None or len(claim.seed) < MIN_SEED:
            self._missing = (
                "no seed of 16 bytes or more was drawn after the result was committed"
            )
        else:
            self._digest = _commitment(claim, claim.statistics)
            size = claim.dimension, claim.classes, claim.rounds
            self._answering = Answering(draw(claim.seed, self._digest, *size), claim.bits)

    def __enter__(self) -> "Testing":
        return self

    def __exit__(self, *_: object) -> None:
        if self._answering is not None:
            self._answering.__exit__()

    def take(self, rows: Rows) -> None:
        """Add rows."""
        if self._answering is not None:
            self._answering.take(rows)

    def judge(self) -> tuple[Judgement, Recomputed | None]:
        """Judge the claimed statistics, and return them if they passed."""
        claimed, answering = self._claim.statistics, self._answering
        if claimed is None or answering is None:
            return judged(SPEC, f"{self._missing}", passed=False, undecided=True), None
        answers = answering.result()
        if claimed.rows != answering.rows:
            raise UnusableRowsError("the claimed number of rows is not the number stored")
        if answers != answer_of_claim(claimed, answering.challenge):
            raise UnusableRowsError("the statistics are not those of the retained rows")
        chance = decimal_above(error_probability(self._claim.rounds))
        limit = f"{SPEC.threshold}; wrong statistics pass with probability at most {chance}"
        judgement = judged(
            SPEC, self._digest, passed=True, interval=("0", chance), threshold=limit
        )
        return judgement, Recomputed(claimed.gram, claimed.moment, claimed.rows)


def suffices(dimension: int, rounds: int = 1) -> bool:
    """Return whether the test works for this dimension and is sure enough."""
    return dimension <= MAX_DIMENSION and error_probability(rounds) <= SUFFICIENT


def malformed(claimed: ClaimedStatistics, dimension: int, classes: int) -> str | None:
    """Return why `claimed` are not statistics of this shape, or None."""
    if claimed.gram.dtype != np.int64 or claimed.gram.shape != (dimension, dimension):
        return "the claimed Gram matrix has another shape or type"
    if claimed.moment.dtype != np.int64 or claimed.moment.shape != (dimension, classes):
        return "the claimed moment has another shape or type"
    if not np.array_equal(claimed.gram, claimed.gram.T):
        return "the claimed Gram matrix is not symmetric"
    return None


def _commitment(claim: RidgeClaim, claimed: ClaimedStatistics) -> str:
    """Return the digest of `claimed` once everything except its numbers is valid."""
    check_constants(claim.dimension, claim.classes, claim.bits)
    if claim.dimension > MAX_DIMENSION or not 1 <= claim.rounds <= MAX_ROUNDS:
        raise UnusableRowsError("the dimension or the rounds are out of range")
    problem = malformed(claimed, claim.dimension, claim.classes)
    if problem is not None:
        raise UnusableRowsError(problem)
    recomputed = Recomputed(claimed.gram, claimed.moment, claimed.rows)
    digest = digest_of(recomputed, claim.exponents, claim.bits, claim.penalty)
    if digest != claim.statistics_digest:
        raise UnusableRowsError("the statistics are not those of the published digest")
    return digest


def _limbs(values: IntMatrix) -> Iterator[Matrix]:
    """Yield the three limbs of numbers below 2^61, lowest first."""
    for place in range(LIMBS):
        yield ((values >> (LIMB * place)) & MASK).astype(np.float64)


def joined(sums: IntMatrix, gaps: NDArray[np.int64]) -> IntMatrix:
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
