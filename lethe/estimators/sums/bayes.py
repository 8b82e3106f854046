"""Naive Bayes from exact sums: unlearning subtracts integers.

Means, variances and probabilities are quotients of integers, each rounded once to float64, so
the model has the same bits on every machine. Logarithms are taken at prediction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.estimators.sums.config import CodedRows, SumsConfig
from lethe.estimators.sums.fixed_point import WEIGHT_BITS, Whole, check_total, halves
from lethe.estimators.sums.published import Names, PublishedBayes

_PARTS = 5  # of the sums: high, low, high high, high low, low low halves of codes


@dataclass(frozen=True, slots=True, eq=False)
class BayesSums:
    """sums (5, classes, features) and weights (classes,), int64."""

    config: SumsConfig
    sums: NDArray[np.int64]
    weights: NDArray[np.int64]

    @classmethod
    def of_nothing(cls, config: SumsConfig) -> "BayesSums":
        """Return the sums over no rows."""
        sums = np.zeros((_PARTS, config.classes, config.columns), np.int64)
        return cls(config, sums, np.zeros(config.classes, np.int64))

    @classmethod
    def read(cls, config: SumsConfig, arrays: Sequence[NDArray[np.int64]]) -> "BayesSums":
        """Return the sums with these arrays. Raises ValueError if they do not fit."""
        expected = cls.of_nothing(config).arrays
        if [one.shape for one in arrays] != [one.shape for one in expected]:
            raise ValueError("sums of another shape")
        return cls(config, *arrays)

    @property
    def arrays(self) -> list[NDArray[np.int64]]:
        """The sums, in the form that `read` takes."""
        return [self.sums, self.weights]

    @property
    def weight(self) -> int:
        """The weight of all rows, in sixteenths."""
        return int(self.weights.sum())

    def changed(self, rows: CodedRows, sign: int) -> "BayesSums":
        """Return the sums with rows added (1) or subtracted (-1).

        Halves are within 2^15, all weights together within 2^32: below 2^63. Raises
        EstimatorInputError if the total weight exceeds that.
        """
        sums, weights = self.sums.copy(), self.weights.copy()
        for c in np.unique(rows.targets):
            own = rows.take(rows.targets == c)
            w = sign * own.weights
            high, low = halves(own.features)
            weights[c] += w.sum()
            products = (high, low, high * high, high * low, low * low)
            for part, values in zip(sums, products, strict=True):
                part[c] += w @ values
        check_total(int(weights.sum()))
        return BayesSums(self.config, sums, weights)

    def with_classes(self, config: SumsConfig, kept: NDArray[np.bool_]) -> "BayesSums":
        """Return the sums without the classes that have no row, unless `kept`."""
        return BayesSums(config, self.sums[:, kept], self.weights[kept])

    def check_solvable(self) -> None:
        """Every set of rows has a model."""

    def published(self, classes: Names = ()) -> PublishedBayes:
        """Return the model; if no row has a weight, all classes are equally probable."""
        weights = [int(one) for one in self.weights]
        total = sum(weights)
        prior = np.array([one / total if total else 1 / len(weights) for one in weights])
        high, low, *squares = (part.astype(object) for part in self.sums)
        linear = (high << 16) + low
        if self.config.kind == "multinomial-nb":
            parts = [self._probabilities(linear)]
        else:
            square = (squares[0] << 32) + (squares[1] << 17) + squares[2]
            parts = self._moments(weights, linear, square)
        return PublishedBayes(
            self.config.kind, classes, prior, tuple(np.array(one) for one in parts)
        )

    def _moments(
        self, n: Sequence[int], linear: Whole, squares: Whole
    ) -> list[list[list[float]]]:
        """Return means and variances, smoothed by a share of the largest variance."""
        e, features = self.config.exponent, range(self.config.columns)
        widest = max(
            _variance(sum(n), sum(linear[:, j]), sum(squares[:, j]), e) for j in features
        )
        extra = max(self.config.var_smoothing * widest, ldexp(1.0, 2 * e))
        means = [
            [ldexp(int(x) / max(m, 1), e) for x in row]
            for m, row in zip(n, linear, strict=True)
        ]
        variances = [
            [_variance(n[c], linear[c, j], squares[c, j], e) + extra for j in features]
            for c in range(len(n))
        ]
        return [means, variances]

    def _probabilities(self, linear: Whole) -> list[list[float]]:
        """Return the probability of each feature in each class, with alpha added to counts."""
        step = Fraction(2) ** (WEIGHT_BITS - self.config.exponent)
        extra = Fraction(self.config.alpha) * step
        times, plus, d = extra.denominator, extra.numerator, self.config.columns
        return [
            [(int(x) * times + plus) / (int(sum(row)) * times + d * plus) for x in row]
            for row in linear
        ]


def _variance(n: int, total: Any, squares: Any, exponent: int) -> float:
    """Return the variance of n codes, rounded once, in squared units; 0 for n = 0."""
    if not n:
        return 0.0
    return ldexp(int(n * squares - total * total) / (n * n), 2 * exponent)
