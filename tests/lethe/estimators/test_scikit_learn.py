"""scikit-learn's own checks of estimators."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.estimators import (
    ExactForestClassifier,
    ExactForestRegressor,
    ExactGaussianNB,
    ExactMultinomialNB,
    ExactRidgeClassifier,
    ExactRidgeRegressor,
)

ESTIMATORS = [
    ExactForestClassifier(n_estimators=10),
    ExactForestClassifier(n_estimators=10, missing="bin"),
    ExactForestRegressor(n_estimators=10),
    ExactGaussianNB(),
    ExactMultinomialNB(),
    ExactRidgeClassifier(),
    ExactRidgeRegressor(),
]


@parametrize_with_checks(ESTIMATORS)  # type: ignore[untyped-decorator]
def test_it_behaves_as_scikit_learn_expects(estimator: Any, check: Any) -> None:
    check(estimator)
