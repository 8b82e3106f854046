"""Ridge regression as scikit-learn estimators that unlearn exactly (sums/ridge.py)."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from lethe.estimators.base import ExactClassifier
from lethe.estimators.summed import SummedEstimator
from lethe.estimators.sums.config import SumsConfig
from lethe.estimators.sums.fixed_point import Floats
from lethe.estimators.sums.published import PublishedRidge


@dataclass(eq=False, repr=False)
class _ExactRidge(SummedEstimator):
    """alpha: the penalty, above 0. fit_intercept: add a constant that is not penalised."""

    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    exponent: int = -16

    def _name_arrays(self, published: PublishedRidge) -> None:
        self.coef_: Floats = published.coef
        self.intercept_: Floats = published.intercept


@dataclass(eq=False, repr=False)
class ExactRidgeRegressor(RegressorMixin, _ExactRidge):  # type: ignore[misc]
    """Ridge regression that unlearns rows exactly; targets are rounded as features are.

    target_exponent: targets are rounded to steps of 2^target_exponent.
    """

    _: KW_ONLY
    target_exponent: int = -16

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit rows X (n, d) with targets y (n,).

        ids: of the records, None for 0 to n - 1. sample_weight: multiples of 1/16 up to 256.

        Raises EstimatorInputError, a ValueError: NaN, infinity, a number beyond 2^31 steps, ids
        that repeat, other weights, 2^20 rows, or a penalty too small to solve.
        """
        features, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._fit_rows(features, targets.astype(np.float64), ids, sample_weight)
        return self

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the predicted targets (n,)."""
        return self._outputs_of(X)[:, 0]

    def _config(self, columns: int) -> SumsConfig:
        return SumsConfig(
            kind="ridge-regressor",
            columns=columns,
            classes=0,
            alpha=self.alpha,
            intercept=self.fit_intercept,
            exponent=self.exponent,
            target_exponent=self.target_exponent,
        )


@dataclass(eq=False, repr=False)
class ExactRidgeClassifier(_ExactRidge, ExactClassifier):
    """Ridge regression on one column of 0 and 1 for each class, unlearning rows exactly.

    classes: all possible labels; None: those of the rows.
    """

    _: KW_ONLY
    classes: Any = None

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit rows X (n, d) with labels y (n,); the rest is as for the regressor."""
        features, labels = validate_data(self, X, y, dtype=np.float64)
        self._fit_rows(features, self._class_numbers(labels), ids, sample_weight)
        return self

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the output of each class (n, classes), or for two the difference (n,)."""
        found = self._outputs_of(X)
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the class with the largest output (n,)."""
        found = self.decision_function(X)
        best = (found > 0).astype(int) if found.ndim == 1 else found.argmax(axis=1)
        chosen: NDArray[Any] = self.classes_[best]
        return chosen

    def _config(self, columns: int) -> SumsConfig:
        return SumsConfig(
            kind="ridge-classifier",
            columns=columns,
            classes=len(self.classes_),
            alpha=self.alpha,
            intercept=self.fit_intercept,
            exponent=self.exponent,
        )
