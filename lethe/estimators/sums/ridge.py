"""Ridge regression from exact sums: unlearning subtracts integers and solves again.

W = argmin of the sum over rows of w (x W + b - y)^2, plus alpha times the sum of W^2. Rows are
codes (fixed_point.py). The sums are exact, the centring by the intercept is exact in Python's
integers, and each entry of the system is rounded once; `solve` has a fixed order of
operations. So equal rows have equal weights, bit for bit. The weights are not correctly
rounded, as those of the service's family `ridge` are: they carry the error of a float64
solution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import fsum, ldexp
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.sums.config import CodedRows, SumsConfig
from lethe.estimators.sums.fixed_point import WEIGHT_BITS, Floats, Gram, Whole, check_total
from lethe.estimators.sums.published import Names, PublishedRidge


@dataclass(frozen=True, slots=True, eq=False)
class RidgeSums:
    """Sums of products of features, 1 and outputs: targets, or a 0/1 column for each class."""

    config: SumsConfig
    gram: Gram

    @classmethod
    def of_nothing(cls, config: SumsConfig) -> "RidgeSums":
        """Return the sums over no rows."""
        return cls(config, Gram.of_nothing(config.columns + 1 + max(1, config.classes)))

    @classmethod
    def read(cls, config: SumsConfig, arrays: Sequence[NDArray[np.int64]]) -> "RidgeSums":
        """Return the sums with these arrays. Raises ValueError if they do not fit."""
        expected = cls.of_nothing(config).arrays
        if [one.shape for one in arrays] != [one.shape for one in expected]:
            raise ValueError("sums of another shape")
        return cls(config, Gram([part.copy() for part in arrays]))

    @property
    def arrays(self) -> list[NDArray[np.int64]]:
        """The sums, in the form that `read` takes."""
        return self.gram.parts

    @property
    def weight(self) -> int:
        """The weight of all rows, in sixteenths."""
        d = self.config.columns
        return int(self.gram.entry(d, d))

    def changed(self, rows: CodedRows, sign: int) -> "RidgeSums":
        """Return the sums with rows added (1) or subtracted (-1).

        Raises EstimatorInputError: the total weight is too large for exact sums.
        """
        gram = Gram([part.copy() for part in self.gram.parts])
        outputs = rows.targets[:, None]
        if self.config.classes:
            outputs = np.eye(self.config.classes, dtype=np.int64)[rows.targets]
        ones = np.ones((len(rows.targets), 1), np.int64)
        gram.add(np.hstack([rows.features, ones, outputs]), rows.weights, sign)
        found = RidgeSums(self.config, gram)
        check_total(found.weight)
        return found

    def with_classes(self, config: SumsConfig, kept: NDArray[np.bool_]) -> "RidgeSums":
        """Return the sums without the classes that have no row, unless `kept`."""
        d = self.config.columns + 1
        columns = np.concatenate([np.arange(d), d + np.flatnonzero(kept)])
        parts = [part[np.ix_(columns, columns)] for part in self.gram.parts]
        return RidgeSums(config, Gram(parts))

    def published(self, classes: Names = ()) -> PublishedRidge:
        """Return the model; if no row has a weight, its weights and intercepts are 0.

        Raises EstimatorInputError: the penalty is too small for a float64 solution.
        """
        config, outputs = self.config, max(1, self.config.classes)
        intercepts = np.zeros(outputs)
        if not self.weight:
            coef = np.zeros((outputs, config.columns))
            return PublishedRidge(config.kind, classes, coef, intercepts)
        matrix, right, scales, n, s, t = self._system()
        units = solve(matrix, right)
        exponent = 0 if config.classes else config.target_exponent
        weights = np.ldexp(units, exponent - config.exponent - np.array(scales)[:, None])
        coef = np.ascontiguousarray(weights.T)
        if config.intercept:
            means = [ldexp(int(one) / n, config.exponent) for one in s]
            for k in range(outputs):
                mean = ldexp(int(t[k]) / n, exponent)
                terms = [-a * b for a, b in zip(means, coef[k].tolist(), strict=True)]
                intercepts[k] = fsum([mean, *terms])
        return PublishedRidge(config.kind, classes, coef, intercepts)

    def check_solvable(self) -> None:
        """Check that the rows, and every subset that erasures may leave, have a solution.

        Cholesky's factorisation of a matrix of unit diagonal succeeds in float64 if its least
        eigenvalue is above d (d + 1) 2^-53 (Higham, Accuracy and Stability of Numerical
        Algorithms, theorem 10.7). That eigenvalue is at least the penalty's share of the
        largest diagonal entry, and removing a row makes no diagonal entry larger. Raises
        EstimatorInputError: the penalty is too small relative to the features.
        """
        config, d = self.config, self.config.columns
        whole, n = self.gram.whole(), self.weight
        if not n or not d:
            return
        diagonal = [Fraction(int(whole[j, j])) for j in range(d)]
        if config.intercept:
            diagonal = [diagonal[j] - Fraction(int(whole[j, d]) ** 2, n) for j in range(d)]
        # 4: the entries are rounded too, and the diagonal is scaled by powers of 2.
        share = max(diagonal) * 4 * (d + 1) * (d + 2) / (self._penalty() * 2**53)
        if share > 1:
            # 1.01: three digits of it still suffice.
            enough = float(share * Fraction(config.alpha)) * 1.01
            raise EstimatorInputError(
                f"alpha: too small relative to feature {diagonal.index(max(diagonal))} for a "
                f"float64 solution, even after erasures: choose at least {enough:.3g}, or "
                "rescale the feature by a factor that no row decided"
            )

    def _penalty(self) -> Fraction:
        """Return the penalty in units of codes and of steps of weights."""
        step = Fraction(2) ** (WEIGHT_BITS - 2 * self.config.exponent)
        return Fraction(self.config.alpha) * step

    def _system(self) -> tuple[Floats, Floats, list[int], int, Whole, Whole]:
        """Return matrix and right side of the system, their scales, n, sums of x and of y."""
        whole, d = self.gram.whole(), self.config.columns
        n, s, t = int(whole[d, d]), whole[:d, d], whole[d, d + 1 :]
        gram, moment, times = whole[:d, :d], whole[:d, d + 1 :], 1
        if self.config.intercept:
            gram = n * gram - np.outer(s, s)
            moment, times = n * moment - np.outer(s, t), n
        # Scaled by `times`, so that everything is an integer.
        penalty = self._penalty() * times
        gram, moment = gram * penalty.denominator, moment * penalty.denominator
        gram[np.arange(d), np.arange(d)] += penalty.numerator
        matrix, scales = _scaled(gram)
        right = np.array(
            [[_quotient(int(one), scales[j]) for one in moment[j]] for j in range(d)]
        )
        return matrix, right, scales, n, s, t


def _scaled(gram: Whole) -> tuple[Floats, list[int]]:
    """Return S G S in float64, each entry rounded once, and s with S = diag(2^-s).

    Its diagonal is from 1/4 to 2.
    """
    scales = [(int(gram[j, j]).bit_length() + 1) // 2 for j in range(len(gram))]
    matrix = np.array(
        [
            [_quotient(int(one), scales[i] + scales[j]) for j, one in enumerate(row)]
            for i, row in enumerate(gram)
        ]
    )
    return matrix, scales


def _quotient(number: Any, exponent: int) -> float:
    """Return number / 2^exponent, rounded once, as Python's integer division is."""
    found: float = number / (1 << exponent)
    return found


def solve(matrix: Floats, right: Floats) -> Floats:
    """Return X (d, c) with matrix (d, d) X = right (d, c).

    The matrix must be symmetric, positive definite, with a diagonal near 1. LAPACK's bits
    change with its build and its number of threads. Here each number comes from additions,
    products, quotients and square roots of IEEE 754 in one order, compiled without `fastmath`,
    which neither reorders nor fuses them: equal systems have equal solutions, bit for bit,
    wherever float64 is IEEE's. It is a few times slower than LAPACK. Raises
    EstimatorInputError: rounding leaves the matrix indefinite.
    """
    lower = matrix.copy()
    if not _factorise(lower):
        raise EstimatorInputError(
            "alpha: too small for these features in float64: choose a larger one"
        )
    found = right.copy()
    _substitute(lower, found)
    return found


@njit(cache=True)
def _factorise(a: Floats) -> bool:
    """Write L with a = L Lᵀ into the rows of Lᵀ: row k of `a`, from the diagonal on."""
    for k in range(len(a)):
        if not a[k, k] > 0:
            return False
        root = np.sqrt(a[k, k])
        for j in range(k, len(a)):
            a[k, j] = a[k, j] / root
        for i in range(k + 1, len(a)):
            factor = a[k, i]
            for j in range(i, len(a)):
                a[i, j] -= factor * a[k, j]
    return True


@njit(cache=True)
def _substitute(a: Floats, x: Floats) -> None:
    for k in range(len(a)):
        for c in range(x.shape[1]):
            x[k, c] = x[k, c] / a[k, k]
        for i in range(k + 1, len(a)):
            for c in range(x.shape[1]):
                x[i, c] -= a[k, i] * x[k, c]
    for k in range(len(a) - 1, -1, -1):
        for i in range(k + 1, len(a)):
            for c in range(x.shape[1]):
                x[k, c] -= a[k, i] * x[i, c]
        for c in range(x.shape[1]):
            x[k, c] = x[k, c] / a[k, k]
