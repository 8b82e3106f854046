"""Exact models that unlearn without a server, as scikit-learn estimators: docs/estimators.md.

Needs the extra `estimators`. Unlearning a row removes every trace of it from the model: the
bytes are those of a model fitted without the row.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lethe.errors import LetheError
from lethe.install import with_extra


class NoEstimatorsError(LetheError, ImportError):
    """A package of the extra is missing: the command line reports it, and a worker waits."""

    slug, title, status = "no-estimators", "The extra estimators is not installed", 503


for _package in ("numba", "numpy", "sklearn"):
    if find_spec(_package) is None:
        raise NoEstimatorsError(
            f"lethe.estimators needs the package {_package}, which is not installed: "
            f"run {with_extra('estimators')}"
        )

if TYPE_CHECKING:
    from lethe.estimators.base import RemovalProof, verify_removal
    from lethe.estimators.forest.forest import Forest
    from lethe.estimators.forests import ExactForestClassifier, ExactForestRegressor
    from lethe.estimators.linear import ExactRidgeClassifier, ExactRidgeRegressor
    from lethe.estimators.naive_bayes import ExactGaussianNB, ExactMultinomialNB

__all__ = [
    "ExactForestClassifier",
    "ExactForestRegressor",
    "ExactGaussianNB",
    "ExactMultinomialNB",
    "ExactRidgeClassifier",
    "ExactRidgeRegressor",
    "Forest",
    "RemovalProof",
    "verify_removal",
]

_HOMES = {
    "ExactForestClassifier": "lethe.estimators.forests",
    "ExactForestRegressor": "lethe.estimators.forests",
    "ExactGaussianNB": "lethe.estimators.naive_bayes",
    "ExactMultinomialNB": "lethe.estimators.naive_bayes",
    "ExactRidgeClassifier": "lethe.estimators.linear",
    "ExactRidgeRegressor": "lethe.estimators.linear",
    "Forest": "lethe.estimators.forest.forest",
    "RemovalProof": "lethe.estimators.base",
    "verify_removal": "lethe.estimators.base",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: a forest does not need scikit-learn."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
