"""Ridge regression from exact sums: unlearning subtracts integers and solves again.

W = argmin of the sum over rows of w (x W + b - y)^2, plus alpha times the sum of W^2. Rows are
codes (fixed_point.py). The sums are exact, the centring by the intercept is exact in Python's
integers, and each entry of the system is rounded once; cholesky.py solves it in a fixed order
of operations. So equal rows have equal weights, bit for bit. The weights are not correctly
rounded, as those of the service are: they carry the error of a float64 solution.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import fsum, isfinite, ldexp
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from lethe.estimators import container
from lethe.estimators.base import ExactClassifier, ExactEstimator
from lethe.estimators.cholesky import solve
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.fixed_point import (
    MAX_ROWS,
    WEIGHT_BITS,
    Floats,
    Gram,
    Whole,
    codes,
    whole_weights,
)
from lethe.estimators.rows import RowStore, record_ids


class _ExactRidge(ExactEstimator):
    """alpha: the penalty, above 0. exponent: features are rounded to steps of 2^exponent.

    fit_intercept: with a constant that is not penalised. Nothing of it may have been chosen by
    rows that are erased, and a scaler before it must not have seen them.
    """

    alpha: float
    fit_intercept: bool
    exponent: int
    _rows: RowStore
    _sums: Gram

    @property
    def store_(self) -> RowStore:
        """The rows that the model was fitted to."""
        return self._rows

    def _fit_rows(
        self,
        features: Floats,
        targets: NDArray[np.int64],
        ids: ArrayLike | None,
        weights: Any,
        outputs: int,
    ) -> None:
        if not (isfinite(self.alpha) and self.alpha > 0):
            raise EstimatorInputError("alpha: give a number above 0, such as 1.0")
        if len(features) > MAX_ROWS:
            raise EstimatorInputError(f"at most {MAX_ROWS} rows, so that sums are exact")
        plain = _check_sample_weight(weights, features, dtype=np.float64)
        steps = whole_weights(plain, WEIGHT_BITS)
        if not steps.any():
            raise EstimatorInputError("sample_weight: all are 0")
        records = record_ids(ids, len(features))
        rows = codes("X", features, self.exponent)
        self._outputs = outputs
        self._rows = RowStore(features.shape[1], 2, np.int32)
        slots = self._rows.add(records, rows, np.stack([targets, steps], axis=1))
        self._sums = Gram.of_nothing(features.shape[1] + 1 + outputs)
        self._sums.add(*self._augmented(slots), 1)
        self._solve(self._sums)
        self._begin(records)

    def _augmented(self, slots: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows (n, d + 1 + outputs) of features, 1 and targets, and their weights."""
        targets, weights = self._rows.targets[slots].T
        ones = np.ones((len(slots), 1), np.int64)
        outputs = self._output_codes(targets)
        return np.hstack([self._rows.values[slots], ones, outputs]), weights

    def _output_codes(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        return targets[:, None]

    def _output_exponent(self) -> int:
        return self.exponent

    def _forget_rows(self, ids: Sequence[str]) -> None:
        after = Gram([part.copy() for part in self._sums.parts])
        after.add(*self._augmented(self._rows.slots_of(ids)), -1)
        self._solve(after)
        self._sums = after
        self._rows.remove(ids)

    def _solve(self, sums: Gram) -> None:
        """Set `coef_` (outputs, d) and `intercept_` (outputs,) from sums of codes."""
        whole = sums.whole()
        d = len(whole) - 1 - self._outputs
        n, s, t = int(whole[d, d]), whole[:d, d], whole[d, d + 1 :]
        if n == 0:
            raise EstimatorInputError("sample_weight: the rows that are left have none")
        gram, moment, times = whole[:d, :d], whole[:d, d + 1 :], 1
        if self.fit_intercept:
            gram = n * gram - np.outer(s, s)
            moment, times = n * moment - np.outer(s, t), n
        # In units of codes and of steps of weights, and `times` as large: all of it integers.
        step = Fraction(2) ** (WEIGHT_BITS - 2 * self.exponent)
        penalty = Fraction(self.alpha) * step * times
        gram, moment = gram * penalty.denominator, moment * penalty.denominator
        gram[np.arange(d), np.arange(d)] += penalty.numerator
        matrix, scales = _scaled(gram)
        right = np.array(
            [[_quotient(int(one), scales[j]) for one in moment[j]] for j in range(d)]
        )
        units = solve(matrix, right)
        shift = self._output_exponent() - self.exponent
        weights = np.ldexp(units, shift - np.array(scales)[:, None])
        self.coef_: Floats = np.ascontiguousarray(weights.T)
        self.intercept_: Floats = np.zeros(self._outputs)
        if self.fit_intercept:
            means = [ldexp(int(one) / n, self.exponent) for one in s]
            for k in range(self._outputs):
                mean = ldexp(int(t[k]) / n, self._output_exponent())
                terms = [-a * b for a, b in zip(means, self.coef_[k].tolist(), strict=True)]
                self.intercept_[k] = fsum([mean, *terms])

    def _outputs_of(self, rows: Any) -> Floats:
        check_is_fitted(self)
        features = validate_data(self, rows, dtype=np.float64, reset=False)
        found: Floats = features @ self.coef_.T + self.intercept_
        return found


class ExactRidgeRegressor(RegressorMixin, _ExactRidge):  # type: ignore[misc]
    """Ridge regression that unlearns rows exactly; targets are rounded as features are.

    target_exponent: targets are rounded to steps of 2^target_exponent.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        exponent: int = -16,
        target_exponent: int = -16,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.exponent = exponent
        self.target_exponent = target_exponent

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit rows X (n, d) with targets y (n,).

        ids: of the records, None for 0 to n - 1. sample_weight: multiples of 1/16 up to 256.

        Raises:
            EstimatorInputError: NaN, infinity, a number beyond 2^31 steps, ids that repeat,
                other weights, 2^20 rows, a penalty too small to solve. A ValueError.
        """
        features, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        steps = codes("y", targets.astype(np.float64), self.target_exponent)
        self._fit_rows(features, steps, ids, sample_weight, outputs=1)
        return self

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the predicted targets (n,)."""
        return self._outputs_of(X)[:, 0]

    def model_bytes(self) -> bytes:
        """Return weights and intercept."""
        return container.pack({"kind": "ridge-regressor"}, [self.coef_, self.intercept_])

    def _output_exponent(self) -> int:
        return self.target_exponent


class ExactRidgeClassifier(ExactClassifier, _ExactRidge):
    """Ridge regression on one column of 0 and 1 for each class, unlearning rows exactly.

    classes: labels there can be; None: those of the rows.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        exponent: int = -16,
        classes: Any = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.exponent = exponent
        self.classes = classes

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit rows X (n, d) with labels y (n,); all else as for the regressor."""
        features, labels = validate_data(self, X, y, dtype=np.float64)
        numbers = self._class_numbers(labels)
        self._fit_rows(features, numbers, ids, sample_weight, outputs=len(self.classes_))
        self.store_.name_classes(self._names())
        return self

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the output of each class (n, classes), or of two their difference (n,)."""
        found = self._outputs_of(X)
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the class with the largest output (n,)."""
        found = self.decision_function(X)
        best = (found > 0).astype(int) if found.ndim == 1 else found.argmax(axis=1)
        chosen: NDArray[Any] = self.classes_[best]
        return chosen

    def model_bytes(self) -> bytes:
        """Return labels, weights and intercepts."""
        header = {"kind": "ridge-classifier", "classes": self._names()}
        return container.pack(header, [self.coef_, self.intercept_])

    def _output_codes(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.eye(self._outputs, dtype=np.int64)[targets]
        return found

    def _output_exponent(self) -> int:
        return 0

    def _drop_classes(self, kept: NDArray[np.bool_]) -> None:
        d = self._rows.values.shape[1] + 1
        columns = np.concatenate([np.arange(d), d + np.flatnonzero(kept)])
        self._sums = Gram([part[np.ix_(columns, columns)] for part in self._sums.parts])
        self._outputs = int(kept.sum())
        self._rows.targets[:, 0] = (np.cumsum(kept) - 1).clip(0)[self._rows.targets[:, 0]]
        self._solve(self._sums)


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


def _quotient(number: int, exponent: int) -> float:
    """Return number / 2^exponent, rounded once; Python's quotient of integers is."""
    return number / (1 << exponent)
