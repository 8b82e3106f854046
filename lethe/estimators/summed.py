"""Common parts of the ridge and naive Bayes estimators: rows as integers, and their sums."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from lethe.estimators.base import ExactEstimator
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.rows import RowStore, record_ids
from lethe.estimators.sums.config import CodedRows, SumsConfig
from lethe.estimators.sums.fixed_point import MAX_ROWS, Floats
from lethe.estimators.sums.published import PublishedSums
from lethe.estimators.sums.sealed import Sums, of_nothing


class SummedEstimator(ExactEstimator):
    """An estimator whose model is a function of integer sums over rows.

    exponent: features are rounded to steps of 2^exponent. It may not be chosen using rows that
    are erased, and a scaler before it must not have seen them.
    """

    _rows: RowStore
    _sums: Sums
    _published: PublishedSums

    @abstractmethod
    def _config(self, columns: int) -> SumsConfig:
        """Return the parameters that, with the rows, determine the model."""

    @abstractmethod
    def _name_arrays(self, published: Any) -> None:
        """Set the public attributes of the fitted model."""

    @property
    def store_(self) -> RowStore:
        """The rows that the model was fitted to."""
        return self._rows

    def model_bytes(self) -> bytes:
        """Return the published file: labels, and the arrays that predict."""
        return self._published.to_bytes()

    def _fit_rows(
        self, features: Floats, targets: NDArray[Any], ids: ArrayLike | None, weights: Any
    ) -> None:
        config = self._config(features.shape[1])
        if len(features) > MAX_ROWS:
            raise EstimatorInputError(
                f"X: has more than {MAX_ROWS} rows, so that sums would not be exact: "
                "divide them among several models"
            )
        plain = _check_sample_weight(weights, features, dtype=np.float64)
        records = record_ids(ids, len(features))
        rows = config.coded(features, targets, plain)
        self._rows = RowStore(features.shape[1], 2, np.int32)
        if config.classes:
            self._rows.name_classes(self._names())
        both = np.stack([rows.targets, rows.weights], axis=1)
        slots = self._rows.add(records, rows.features, both)
        self._set(of_nothing(config).changed(self._coded(slots), 1))
        self._begin(records)

    def _coded(self, slots: NDArray[Any]) -> CodedRows:
        targets, weights = self._rows.targets[slots].T
        return CodedRows(self._rows.values[slots].astype(np.int64), targets, weights)

    def _forget_rows(self, ids: Sequence[str]) -> None:
        self._set(self._sums.changed(self._coded(self._rows.slots_of(ids)), -1))
        self._rows.remove(ids)

    def _drop_classes(self, kept: NDArray[np.bool_]) -> None:
        targets = self._rows.targets
        targets[:, 0] = (np.cumsum(kept) - 1).clip(0)[targets[:, 0]]
        config = replace(self._sums.config, classes=int(kept.sum()))
        self._set(self._sums.with_classes(config, kept))

    def _set(self, sums: Sums) -> None:
        if not sums.weight:
            raise EstimatorInputError(
                "sample_weight: the rows that are left weigh 0: keep one with a weight"
            )
        self._published = sums.published(self._names())
        self._sums = sums
        self._name_arrays(self._published)

    def _outputs_of(self, rows: Any) -> Floats:
        check_is_fitted(self)
        features = validate_data(self, rows, dtype=np.float64, reset=False)
        return self._published.outputs(features)
