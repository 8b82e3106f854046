"""Naive Bayes as scikit-learn estimators that unlearn exactly (sums/bayes.py)."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from lethe.estimators.base import ExactClassifier
from lethe.estimators.summed import SummedEstimator
from lethe.estimators.sums.config import SumsConfig
from lethe.estimators.sums.fixed_point import Floats
from lethe.estimators.sums.published import PublishedBayes


@dataclass(eq=False, repr=False, kw_only=True)
class _ExactNaiveBayes(SummedEstimator, ExactClassifier):
    """classes: all possible labels; None: those of the rows."""

    exponent: int = -16
    classes: Any = None

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit rows X (n, d) with labels y (n,).

        ids: of the records, None for 0 to n - 1. sample_weight: multiples of 1/16 up to 256.

        Raises EstimatorInputError, a ValueError: NaN, infinity, a number beyond 2^31 steps, ids
        that repeat, other weights, 2^20 rows, or a label that is not declared.
        """
        features, labels = validate_data(self, X, y, dtype=np.float64)
        self._fit_rows(features, self._class_numbers(labels), ids, sample_weight)
        return self

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each of `classes_` (n, classes)."""
        joint = self._outputs_of(X)
        likely = np.exp(joint - joint.max(axis=1, keepdims=True))
        found: Floats = likely / likely.sum(axis=1, keepdims=True)
        return found

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class (n,)."""
        best = self._outputs_of(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found


@dataclass(eq=False, repr=False, kw_only=True)
class ExactGaussianNB(_ExactNaiveBayes):
    """Gaussian naive Bayes that unlearns rows exactly.

    var_smoothing: this share of the largest variance of a feature, but at least one squared
    step, is added to each variance.
    """

    var_smoothing: float = 1e-9

    def _config(self, columns: int) -> SumsConfig:
        return SumsConfig(
            kind="gaussian-nb",
            columns=columns,
            classes=len(self.classes_),
            var_smoothing=self.var_smoothing,
            exponent=self.exponent,
        )

    def _name_arrays(self, published: PublishedBayes) -> None:
        self.class_prior_: Floats = published.prior
        self.theta_, self.var_ = published.parts


@dataclass(eq=False, repr=False, kw_only=True)
class ExactMultinomialNB(_ExactNaiveBayes):
    """Multinomial naive Bayes that unlearns rows exactly; alpha > 0 is added to each count."""

    alpha: float = 1.0

    def _config(self, columns: int) -> SumsConfig:
        return SumsConfig(
            kind="multinomial-nb",
            columns=columns,
            classes=len(self.classes_),
            alpha=self.alpha,
            exponent=self.exponent,
        )

    def _name_arrays(self, published: PublishedBayes) -> None:
        self.class_prior_: Floats = published.prior
        (self.feature_prob_,) = published.parts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.classifier_tags.poor_score = True  # on features that are not counts
        return tags
