"""Common parts of the exact estimators: rows by id, `unlearn`, and its proof."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from lethe.certificates import shape
from lethe.certificates.errors import RemovalError
from lethe.certificates.evidence import Removal, check_sets, prove_removal
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.rows import RowStore, distinct_ids, salt_of

Labels = NDArray[Any]


@dataclass(frozen=True)
class RemovalProof:
    """An estimator's claim about a removal; `verify_removal` checks it.

    model_before, model_after: SHA-256 of `model_bytes`, hex. removal: JSON as in the evidence
    of a certificate (lethe/certificates/evidence.py): root and size of the retained set before
    and after, and for each removed record its id, its commitment and its path. It holds record
    ids, so it is personal data.
    """

    model_before: str
    model_after: str
    removal: dict[str, Any]

    @property
    def removed(self) -> list[str]:
        """The ids of the removed records, as text, sorted."""
        return sorted(record.record for record in self._section().records)

    @property
    def root_before(self) -> str:
        """The root of the retained set before, hex."""
        return self._section().before.root.hex()

    @property
    def root_after(self) -> str:
        """The root of the retained set after, hex."""
        return self._section().after.root.hex()

    def check(self) -> None:
        """Check that removing exactly `removed` turns the set before into the set after.

        Raises RemovalError if the paths do not prove it.
        """
        section = self._section()
        count = len(section.records)
        check_sets(section, section.before, section.after, count, section.records_root)
        if any(record.salt != salt_of(record.record) for record in section.records):
            raise RemovalError("a record has a salt that is not that of its id")

    def _section(self) -> Removal:
        section: Removal = shape.read(Removal, self.removal)
        return section


class ExactEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose model is a function of its parameters and the set of its rows."""

    @property
    @abstractmethod
    def store_(self) -> RowStore:
        """The rows that the model was fitted to."""

    @abstractmethod
    def model_bytes(self) -> bytes:
        """Return the model: only what is needed to predict."""

    @abstractmethod
    def _forget_rows(self, ids: Sequence[str]) -> None:
        """Remove existing rows from model and store; on an error both are unchanged."""

    def _forget(self, ids: Sequence[str]) -> None:
        self._forget_rows(ids)

    def _names(self) -> list[list[str]]:
        """Return type and text of each class's label, empty for a regressor."""
        return []

    @property
    def retained_ids_(self) -> list[str]:
        """The ids of the rows that the model was fitted to, in the order of `fit`, as text."""
        return list(self._order)

    @property
    def retained_root_(self) -> str:
        """The root of the retained set (lethe/estimators/rows.py), hex."""
        return self.store_.tree.root.hex()

    def model_digest(self) -> str:
        """Return the SHA-256 of `model_bytes`, hex."""
        return sha256(self.model_bytes()).hexdigest()

    def unlearn(self, ids: ArrayLike) -> RemovalProof:
        """Remove rows from the model by their ids; return a proof.

        The model then has the bytes of a model fitted to the remaining rows, and the estimator
        keeps nothing of the removed ones. The ids in the proof are personal data. Raises
        EstimatorInputError: an id is unknown or given twice, none is given, or no row would
        remain. The model is then unchanged.
        """
        check_is_fitted(self)
        wanted = distinct_ids(np.atleast_1d(np.asarray(ids)).tolist())
        if not wanted:
            raise EstimatorInputError("ids: give at least one")
        self.store_.slots_of(wanted)
        if len(wanted) == len(self.store_):
            raise EstimatorInputError(
                "ids: no row would be left, and there is no model of nothing: delete the "
                "estimator and what was saved of it"
            )
        tree, before = self.store_.tree, self.model_digest()
        self._forget(wanted)
        section = prove_removal(tree, {one: salt_of(one) for one in wanted})
        for one in wanted:
            del self._order[one]
        return RemovalProof(before, self.model_digest(), section)

    def _begin(self, ids: Sequence[str]) -> None:
        # The store is ordered by slots, which differs from the order of `fit`.
        self._order = dict.fromkeys(ids)


class ExactClassifier(ClassifierMixin, ExactEstimator):  # type: ignore[misc]
    """Classes are declared, or those of the rows: then a class disappears with its last row."""

    classes: Any
    classes_: Labels

    def _class_numbers(self, labels: Labels) -> NDArray[np.int64]:
        """Set `classes_` and return the number of each row's class.

        Raises EstimatorInputError: a label is not declared.
        """
        check_classification_targets(labels)
        found = np.unique(labels)
        if self.classes is None:
            self.classes_ = found
        else:
            self.classes_ = np.unique(np.asarray(self.classes))
            if not np.isin(found, self.classes_).all():
                raise EstimatorInputError(
                    "y: a label is not among the declared classes: declare it in classes, "
                    "or correct it"
                )
        numbers = np.searchsorted(self.classes_, labels).astype(np.int64)
        self._counts = np.bincount(numbers, minlength=len(self.classes_))
        return numbers

    def _forget(self, ids: Sequence[str]) -> None:
        leaving = self.store_.targets[self.store_.slots_of(ids), 0]
        counts = self._counts - np.bincount(leaving, minlength=len(self.classes_))
        self._forget_rows(ids)
        kept = (counts > 0) | (self.classes is not None)
        self._counts = counts[kept]
        if not kept.all():
            self.classes_ = self.classes_[kept]
            self._drop_classes(kept)
            self.store_.name_classes(self._names())

    @abstractmethod
    def _drop_classes(self, kept: NDArray[np.bool_]) -> None:
        """Remove the classes that have no row from the model, unless `kept`."""

    def _names(self) -> list[list[str]]:
        return [[type(one).__name__, str(one)] for one in self.classes_.tolist()]


def verify_removal(
    estimator: ExactEstimator,
    proof: RemovalProof,
    X_retained: Any,  # noqa: N803
    y_retained: Any,
    *,
    ids: ArrayLike | None = None,
    **fit_params: Any,
) -> None:
    """Check a removal proof against a refit on the remaining rows.

    1. The paths lead from the set before to the set after, and exactly the removed ids left.
    2. The given rows are the set after.
    3. A model fitted to them from scratch has the bytes that the proof names.
    4. The estimator's model has those bytes now.

    The model before is not verified: that takes a refit with the erased rows. ids: of the given
    rows; None: the estimator's own, in the order of `fit`. Raises RemovalError; the message
    names the failed step.
    """
    proof.check()
    chosen = estimator.retained_ids_ if ids is None else ids
    again = clone(estimator).fit(X_retained, y_retained, ids=chosen, **fit_params)
    if again.retained_root_ != proof.root_after:
        raise RemovalError("step 2: the rows are not those of the retained set after")
    if again.model_digest() != proof.model_after:
        raise RemovalError("step 3: a refit on the rows has another model")
    if estimator.model_digest() != proof.model_after:
        raise RemovalError("step 4: the estimator has another model than after this removal")
