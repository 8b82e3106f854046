"""The history-independent forest as scikit-learn estimators."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import frexp, isfinite
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from lethe.estimators import container
from lethe.estimators.base import ExactClassifier, ExactEstimator
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.forest.bins import DEFAULT_EDGES, Bins
from lethe.estimators.forest.forest import Forest
from lethe.estimators.forest.impurity import MAX_TARGET
from lethe.estimators.forest.published import ForestConfig, PublishedForest
from lethe.estimators.forest.tree import MAX_DEPTH
from lethe.estimators.rows import RowStore, record_ids
from lethe.estimators.sums.fixed_point import Floats

DEFAULT_TARGET_STEP = -10  # 2^-10: targets within ±1,024


class _Fitted(ExactEstimator):
    """The results of `fit`."""

    forest_: Forest
    _published: PublishedForest


@dataclass(eq=False, repr=False)
class _ExactForest(_Fitted):
    """n_estimators, max_depth, min_samples_leaf, max_features: as in scikit-learn's forests.

    thresholds: candidates per feature at a node. edges: for each feature at most 62 ascending
    numbers; or public_rows, never erased, whose quantiles are the edges; with neither, 62 fixed
    edges that suit features of unit scale. missing: "refuse" NaN, or give it a "bin".
    random_state: a whole number. None of these may be chosen using rows that are erased.
    """

    n_estimators: int = 100
    _: KW_ONLY
    max_depth: int | None = None
    min_samples_leaf: int = 1
    max_features: str | int | float = "sqrt"
    thresholds: int = 5
    edges: Any = None
    public_rows: Any = None
    missing: str = "refuse"
    random_state: int = 0

    @property
    def store_(self) -> RowStore:
        """The rows that the model was fitted to."""
        return self.forest_.store

    def _features(self, rows: Any, **options: Any) -> Any:
        finite = "allow-nan" if self.missing == "bin" else True
        return validate_data(self, rows, dtype=np.float64, ensure_all_finite=finite, **options)

    def _fit_codes(
        self, features: Floats, targets: NDArray[np.int64], ids: Sequence[str], classes: int
    ) -> None:
        config = ForestConfig(
            bins=self._bins(features.shape[1]),
            classes=classes,
            trees=self.n_estimators,
            depth=MAX_DEPTH if self.max_depth is None else self.max_depth,
            least=self.min_samples_leaf,
            group=_group(self.max_features, features.shape[1]),
            thresholds=self.thresholds,
            seed=_whole(self.random_state),
            prior=getattr(self, "prior", 1),
        )
        self.forest_ = Forest(config)
        self.forest_.add(ids, features, targets)
        self._published = self.forest_.published()
        self._begin(ids)

    def _bins(self, features: int) -> Bins:
        if self.missing not in ("refuse", "bin"):
            raise EstimatorInputError("missing: choose 'refuse' or 'bin'")
        missing = self.missing == "bin"
        if self.edges is not None and self.public_rows is not None:
            raise EstimatorInputError("edges, public_rows: give one of them, or neither")
        if self.public_rows is not None:
            bins = Bins.of_public_rows(np.asarray(self.public_rows, float), missing=missing)
        elif self.edges is not None:
            bins = Bins.declared(self.edges, missing=missing)
        else:
            bins = Bins((DEFAULT_EDGES,) * features, missing)
        if len(bins.edges) != features:
            raise EstimatorInputError(
                f"edges or public_rows are of {len(bins.edges)} features, X has {features}"
            )
        return bins

    def _forget_rows(self, ids: Sequence[str]) -> None:
        self.forest_.remove(ids)
        self._published = self.forest_.published()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "bin"
        return tags


@dataclass(eq=False, repr=False)
class ExactForestClassifier(ExactClassifier, _ExactForest):
    """A forest that unlearns rows exactly. prior: pseudo-rows per leaf, over all classes.

    classes: all possible labels; None: those of the rows, and then unlearning the last row of a
    class costs a refit.
    """

    _: KW_ONLY
    prior: int = 1
    classes: Any = None

    def fit(self, X: Any, y: Any, ids: ArrayLike | None = None) -> Self:  # noqa: N803
        """Fit rows X (n, d) with labels y (n,); ids: of the records, None for 0 to n - 1.

        Raises EstimatorInputError, a ValueError: NaN without a bin, infinity, ids that repeat,
        a label that is not declared, or a parameter out of its range.
        """
        features, labels = self._features(X, y=y)
        numbers = self._class_numbers(labels)
        self._fit_codes(features, numbers, record_ids(ids, len(features)), len(self.classes_))
        self.store_.name_classes(self._names())
        return self

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each of `classes_` (n, classes)."""
        check_is_fitted(self)
        return self._published.probabilities(self._features(X, reset=False))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class (n,); ties go to the first."""
        best = self.predict_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def model_bytes(self) -> bytes:
        """Return labels and published forest."""
        forest = np.frombuffer(self._published.to_bytes(), np.uint8)
        return container.pack({"kind": "forest-classifier", "classes": self._names()}, [forest])

    def _drop_classes(self, kept: NDArray[np.bool_]) -> None:
        config = replace(self.forest_.config, classes=len(self.classes_))
        self.forest_ = self.forest_.with_classes(config, np.cumsum(kept) - 1)
        self._published = self.forest_.published()


@dataclass(eq=False, repr=False)
class ExactForestRegressor(RegressorMixin, _ExactForest):  # type: ignore[misc]
    """A forest that unlearns rows exactly.

    target_bounds: the minimum and maximum possible target, which give the step of targets:
    their distance divided by at most 2^21. None: steps of 2^-10, and targets within ±1,024. A
    leaf's value is the mean of its targets; for a leaf with one row it would be that row's
    target, so min_samples_leaf defaults to 5.
    """

    _: KW_ONLY
    min_samples_leaf: int = 5
    max_features: str | int | float = 0.33
    target_bounds: tuple[float, float] | None = None

    def fit(self, X: Any, y: Any, ids: ArrayLike | None = None) -> Self:  # noqa: N803
        """Fit rows X (n, d) with targets y (n,); ids: of the records, None for 0 to n - 1.

        Raises EstimatorInputError: as for the classifier, and a target outside the bounds.
        """
        features, targets = self._features(X, y=y, y_numeric=True)
        centre, exponent = self._scale()
        steps = np.rint(np.ldexp(targets.astype(np.float64) - centre, -exponent))
        if not (np.abs(steps) <= MAX_TARGET).all():
            raise EstimatorInputError(
                "y: a target is outside the bounds: declare target_bounds, the least and the "
                "greatest there can be"
            )
        self._fit_codes(
            features, steps.astype(np.int64), record_ids(ids, len(features)), classes=0
        )
        return self

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the mean over trees of the leaf's mean target (n,)."""
        check_is_fitted(self)
        centre, exponent = self._scale()
        means = self._published.means(self._features(X, reset=False))
        found: Floats = np.ldexp(means, exponent) + centre
        return found

    def model_bytes(self) -> bytes:
        """Return centre and step of targets, and the published forest."""
        forest = np.frombuffer(self._published.to_bytes(), np.uint8)
        return container.pack(
            {"kind": "forest-regressor"}, [np.array(self._scale(), np.float64), forest]
        )

    def _scale(self) -> tuple[float, int]:
        """Return the centre of targets and the exponent of their step."""
        if self.target_bounds is None:
            return 0.0, DEFAULT_TARGET_STEP
        low, high = map(float, self.target_bounds)
        if not (isfinite(high - low) and low < high):
            raise EstimatorInputError("target_bounds: give two finite numbers that ascend")
        return low / 2 + high / 2, frexp((high - low) / 2 / MAX_TARGET)[1]


def _group(chosen: str | int | float, features: int) -> int:
    """Return how many features are examined together, as scikit-learn's max_features."""
    if chosen == "sqrt":
        return max(1, int(features**0.5))
    if isinstance(chosen, float) and 0 < chosen <= 1:
        return max(1, int(chosen * features))
    if isinstance(chosen, int | np.integer) and chosen >= 1:
        return min(int(chosen), features)
    raise EstimatorInputError("max_features: 'sqrt', a share above 0, or a number of features")


def _whole(seed: Any) -> int:
    if not isinstance(seed, int | np.integer):
        raise EstimatorInputError("random_state: give a whole number")
    return int(seed)
