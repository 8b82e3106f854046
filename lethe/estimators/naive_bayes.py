"""Naive Bayes from exact sums: unlearning subtracts integers.

Means, variances and probabilities are quotients of integers, each rounded once to float64, so
the model has the same bits wherever it is computed. Logarithms are taken when it predicts.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite, ldexp
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from lethe.estimators import container
from lethe.estimators.base import ExactClassifier
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.fixed_point import (
    MAX_ROWS,
    WEIGHT_BITS,
    Floats,
    Whole,
    codes,
    halves,
    whole_weights,
)
from lethe.estimators.rows import RowStore, record_ids

_PARTS = 5  # of the sums: high, low, high high, high low, low low halves of codes


class _ExactNaiveBayes(ExactClassifier):
    """exponent: features are rounded to steps of 2^exponent. classes: labels there can be.

    Nothing of it may have been chosen by rows that are erased.
    """

    exponent: int
    _rows: RowStore
    _sums: NDArray[np.int64]  # (5, classes, features)
    _weights: NDArray[np.int64]  # (classes,)

    @property
    def store_(self) -> RowStore:
        """The rows that the model was fitted to."""
        return self._rows

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit rows X (n, d) with labels y (n,).

        ids: of the records, None for 0 to n - 1. sample_weight: multiples of 1/16 up to 256.

        Raises:
            EstimatorInputError: NaN, infinity, a number beyond 2^31 steps, ids that repeat,
                other weights, 2^20 rows, a label that is not declared. A ValueError.
        """
        features, labels = validate_data(self, X, y, dtype=np.float64)
        numbers = self._class_numbers(labels)
        if len(features) > MAX_ROWS:
            raise EstimatorInputError(f"at most {MAX_ROWS} rows, so that sums are exact")
        plain = _check_sample_weight(sample_weight, features, dtype=np.float64)
        steps = whole_weights(plain, WEIGHT_BITS)
        records = record_ids(ids, len(features))
        rows = codes("X", features, self.exponent)
        self._check(rows)
        self._rows = RowStore(features.shape[1], 2, np.int32)
        self._rows.name_classes(self._names())
        slots = self._rows.add(records, rows, np.stack([numbers, steps], axis=1))
        self._sums = np.zeros((_PARTS, len(self.classes_), features.shape[1]), np.int64)
        self._weights = np.zeros(len(self.classes_), np.int64)
        self._set(*self._changed(slots, 1))
        self._begin(records)
        return self

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each of `classes_` (n, classes)."""
        joint = self._joint(X)
        likely = np.exp(joint - joint.max(axis=1, keepdims=True))
        found: Floats = likely / likely.sum(axis=1, keepdims=True)
        return found

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class (n,)."""
        best = self._joint(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def _joint(self, rows: Any) -> Floats:
        check_is_fitted(self)
        features = validate_data(self, rows, dtype=np.float64, reset=False)
        with np.errstate(divide="ignore"):  # of a declared class without rows
            prior = np.log(self.class_prior_)
        found: Floats = prior + self._log_likelihood(features)
        return found

    def _check(self, rows: NDArray[np.int64]) -> None:
        """Refuse codes that the model is not for."""

    def _log_likelihood(self, features: Floats) -> Floats:
        raise NotImplementedError

    def _parameters(
        self, weights: NDArray[np.int64], linear: Whole, squares: Whole
    ) -> dict[str, Floats]:
        raise NotImplementedError

    def _changed(
        self, slots: NDArray[Any], sign: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return sums and weights after adding (1) or subtracting (-1) rows.

        Halves are within 2^15, weights within 2^12, rows within 2^20: below 2^63.
        """
        sums, weights = self._sums.copy(), self._weights.copy()
        numbers, heavy = self._rows.targets[slots].T
        for c in np.unique(numbers):
            own = slots[numbers == c]
            w = sign * heavy[numbers == c]
            high, low = halves(self._rows.values[own].astype(np.int64))
            weights[c] += w.sum()
            products = (high, low, high * high, high * low, low * low)
            for part, values in zip(sums, products, strict=True):
                part[c] += w @ values
        return sums, weights

    def _set(self, sums: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        total = int(weights.sum())
        if not total:
            raise EstimatorInputError("sample_weight: the rows that are left have none")
        high, low, *squares = (part.astype(object) for part in sums)
        linear = (high << 16) + low
        square = (squares[0] << 32) + (squares[1] << 17) + squares[2]
        found = self._parameters(weights, linear, square)
        self._sums, self._weights = sums, weights
        self.class_prior_: Floats = np.array([int(w) / total for w in weights])
        for name, value in found.items():
            setattr(self, name, value)

    def _forget_rows(self, ids: Sequence[str]) -> None:
        self._set(*self._changed(self._rows.slots_of(ids), -1))
        self._rows.remove(ids)

    def _drop_classes(self, kept: NDArray[np.bool_]) -> None:
        self._rows.targets[:, 0] = (np.cumsum(kept) - 1).clip(0)[self._rows.targets[:, 0]]
        self._set(self._sums[:, kept], self._weights[kept])


class ExactGaussianNB(_ExactNaiveBayes):
    """Gaussian naive Bayes that unlearns rows exactly.

    var_smoothing: this share of the largest variance of a feature, or a squared step if that is
    more, is added to each variance.
    """

    def __init__(
        self, *, var_smoothing: float = 1e-9, exponent: int = -16, classes: Any = None
    ) -> None:
        self.var_smoothing = var_smoothing
        self.exponent = exponent
        self.classes = classes

    def model_bytes(self) -> bytes:
        """Return labels, class probabilities, means and variances."""
        header = {"kind": "gaussian-nb", "classes": self._names()}
        return container.pack(header, [self.class_prior_, self.theta_, self.var_])

    def _parameters(
        self, weights: NDArray[np.int64], linear: Whole, squares: Whole
    ) -> dict[str, Floats]:
        if not (isfinite(self.var_smoothing) and self.var_smoothing >= 0):
            raise EstimatorInputError("var_smoothing: give a number that is not negative")
        e, n = self.exponent, [int(w) for w in weights]
        features = range(linear.shape[1])
        widest = max(
            _variance(sum(n), sum(linear[:, j]), sum(squares[:, j]), e) for j in features
        )
        extra = max(self.var_smoothing * widest, ldexp(1.0, 2 * e))
        theta = [
            [ldexp(int(x) / max(m, 1), e) for x in row]
            for m, row in zip(n, linear, strict=True)
        ]
        var = [
            [_variance(n[c], linear[c, j], squares[c, j], e) + extra for j in features]
            for c in range(len(n))
        ]
        return {"theta_": np.array(theta), "var_": np.array(var)}

    def _log_likelihood(self, features: Floats) -> Floats:
        found = [
            -0.5 * (np.log(2 * np.pi * var) + (features - mean) ** 2 / var).sum(axis=1)
            for mean, var in zip(self.theta_, self.var_, strict=True)
        ]
        return np.stack(found, axis=1)


class ExactMultinomialNB(_ExactNaiveBayes):
    """Multinomial naive Bayes that unlearns rows exactly; alpha > 0 is added to each count."""

    def __init__(self, *, alpha: float = 1.0, exponent: int = -16, classes: Any = None) -> None:
        self.alpha = alpha
        self.exponent = exponent
        self.classes = classes

    def model_bytes(self) -> bytes:
        """Return labels, and the probabilities of classes and of features in them."""
        header = {"kind": "multinomial-nb", "classes": self._names()}
        return container.pack(header, [self.class_prior_, self.feature_prob_])

    def _check(self, rows: NDArray[np.int64]) -> None:
        if (rows < 0).any():
            raise EstimatorInputError(
                "Negative values in data passed to ExactMultinomialNB: counts are at least 0"
            )

    def _parameters(
        self, weights: NDArray[np.int64], linear: Whole, squares: Whole
    ) -> dict[str, Floats]:
        if not (isfinite(self.alpha) and self.alpha > 0):
            raise EstimatorInputError("alpha: give a number above 0, such as 1.0")
        step = Fraction(2) ** (WEIGHT_BITS - self.exponent)
        extra = Fraction(self.alpha) * step
        times, plus, d = extra.denominator, extra.numerator, linear.shape[1]
        found = [
            [(int(x) * times + plus) / (int(sum(row)) * times + d * plus) for x in row]
            for row in linear
        ]
        return {"feature_prob_": np.array(found)}

    def _log_likelihood(self, features: Floats) -> Floats:
        found: Floats = features @ np.log(self.feature_prob_).T
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.classifier_tags.poor_score = True  # on features that are no counts
        return tags


def _variance(n: int, total: Any, squares: Any, exponent: int) -> float:
    """Return the variance of n codes, rounded once, in squared units; 0 of none."""
    if not n:
        return 0.0
    return ldexp(int(n * squares - total * total) / (n * n), 2 * exponent)
