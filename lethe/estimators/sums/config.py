"""The configuration of a model of integer sums, and rows as integers."""

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.sums.fixed_point import (
    WEIGHT_BITS,
    Floats,
    check_exponent,
    codes,
    whole_weights,
)

RIDGE = ("ridge-regressor", "ridge-classifier")
BAYES = ("gaussian-nb", "multinomial-nb")
KINDS = (*RIDGE, *BAYES)


@dataclass(frozen=True, slots=True, eq=False)
class CodedRows:
    """features (n, d), targets (n,) and weights (n,), int64.

    Features are in steps of 2^exponent, weights in sixteenths. A target is the number of a
    class, or in steps of 2^target_exponent.
    """

    features: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.int64]

    def take(self, chosen: NDArray[np.bool_]) -> "CodedRows":
        """Return the chosen rows."""
        return CodedRows(self.features[chosen], self.targets[chosen], self.weights[chosen])


@dataclass(frozen=True, kw_only=True, slots=True)
class SumsConfig:
    """kind: one of KINDS. columns: features per row. classes: number of classes, 0 for numbers.

    alpha: the penalty of ridge, or the amount added to each count. var_smoothing: of a
    Gaussian. intercept: of ridge. None of these may be chosen using rows that are erased later.

    Raises EstimatorInputError: a number is out of its range.
    """

    kind: str
    columns: int
    classes: int
    alpha: float = 1.0
    var_smoothing: float = 1e-9
    intercept: bool = True
    exponent: int = -16
    target_exponent: int = -16

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise EstimatorInputError(f"estimator: choose one of {', '.join(KINDS)}")
        if not (isfinite(self.alpha) and self.alpha > 0):
            raise EstimatorInputError("alpha: give a number above 0, such as 1.0")
        if not (isfinite(self.var_smoothing) and self.var_smoothing >= 0):
            raise EstimatorInputError("var_smoothing: give a number that is not negative")
        check_exponent(self.exponent)
        check_exponent(self.target_exponent)

    def coded(self, features: Floats, targets: NDArray[Any], weights: Floats) -> CodedRows:
        """Return rows as integers; targets are int64 classes, or float64 numbers.

        Raises EstimatorInputError: a number is NaN, infinite or beyond 2^31 steps, a count is
        negative, or a weight is negative or not a multiple of a sixteenth.
        """
        steps = codes("X", features, self.exponent)
        if self.kind == "multinomial-nb" and (steps < 0).any():
            raise EstimatorInputError(
                "Negative values in data passed to multinomial naive Bayes: counts are at "
                "least 0"
            )
        if not self.classes:
            targets = codes("y", targets, self.target_exponent)
        return CodedRows(steps, targets, whole_weights(weights, WEIGHT_BITS))
