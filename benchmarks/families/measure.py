"""The families with their references, and the figures of one on one data set."""

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import mean

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.preprocessing import StandardScaler

from benchmarks import vector_index
from benchmarks.families.models import (
    Estimator,
    Fitted,
    Numbers,
    Program,
    Refitted,
    ShardedRecipe,
    served_forest,
    summed,
)
from lethe.estimators import ExactForestClassifier
from workers.training.recipes import prepared

DELETIONS = 3  # single ones, of each fold


@dataclass(frozen=True, slots=True)
class Family:
    """How a family and its reference are fitted. scaled: to mean 0 and deviation 1 first.

    score: of (predictions, rows fitted to, rows asked of, their labels).
    """

    fit: Callable[[Numbers, Numbers], Fitted]
    reference: Callable[[], ClassifierMixin | RegressorMixin | vector_index.Flat]
    scaled: bool = False
    score: Callable[[Numbers, Numbers, Numbers, Numbers], float] = (
        lambda found, known, asked, labels: float(np.mean(found == labels))
    )


def _vectors(kind: str) -> Family:
    def fit(features: Numbers, labels: Numbers) -> Fitted:
        return vector_index.Index(kind, features)

    return Family(fit, vector_index.Flat, score=vector_index.recall)


def _forest(features: Numbers, labels: Numbers) -> Fitted:
    return Estimator(ExactForestClassifier(100, public_rows=features[::5]), features, labels)


FAMILIES: Mapping[str, Family] = {
    "ridge-classifier": Family(
        lambda x, y: summed("ridge-classifier", x, y), RidgeClassifier, scaled=True
    ),
    "ridge-regressor": Family(
        lambda x, y: summed("ridge-regressor", x, y),
        Ridge,
        scaled=True,
        score=lambda found, known, asked, labels: float(r2_score(labels, found)),
    ),
    "gaussian-nb": Family(lambda x, y: summed("gaussian-nb", x, y), GaussianNB),
    "multinomial-nb": Family(lambda x, y: summed("multinomial-nb", x, y), MultinomialNB),
    "forest": Family(_forest, lambda: RandomForestClassifier(100, random_state=0, n_jobs=1)),
    "forest-service": Family(
        served_forest, lambda: RandomForestClassifier(100, random_state=0, n_jobs=1)
    ),
    "script": Family(Program, lambda: LogisticRegression(max_iter=1000), scaled=True),
    "recipe": Family(
        Refitted, lambda: HistGradientBoostingClassifier(max_iter=50, random_state=0)
    ),
    "shards": Family(
        ShardedRecipe, lambda: HistGradientBoostingClassifier(max_iter=50, random_state=0)
    ),
    **{f"vectors-{kind}": _vectors(kind) for kind in vector_index.KINDS},
}


@dataclass(frozen=True, slots=True)
class Figures:
    """One family on one data set. Ratios are of means over the folds."""

    rows: int
    fit_seconds_ratio: float
    delete_speedup: float
    verified_delete_speedup: float
    accuracy: float
    accuracy_reference: float


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of processors that a call takes, with the processes that it ended.

    Of forked fits (`workers.training.recipes.prepared`) those of the fork, and not of the one
    start of the process that they are forked from.
    """
    before = _processors()
    work()
    return _processors() - before


def _processors() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    forked = prepared.SPENT.seconds
    return time.process_time() + children.ru_utime + children.ru_stime + forked


def measure(family: Family, features: Numbers, labels: Numbers, folds: int) -> Figures:
    """Return a family's figures. Raises if a deletion is not that of a fit without the row."""
    fits: list[float] = []
    references: list[float] = []
    deletions: list[float] = []
    verdicts: list[float] = []
    own: list[float] = []
    other: list[float] = []
    kind = KFold if are_numbers(labels) else StratifiedKFold
    splits = kind(n_splits=folds, shuffle=True, random_state=0)
    for train, test in splits.split(features, labels):
        known, asked = features[train], features[test]
        if family.scaled:
            scaler = StandardScaler().fit(known)
            known, asked = scaler.transform(known), scaler.transform(asked)
        reference = family.reference()
        references.append(seconds(lambda: reference.fit(known, labels[train])))  # noqa: B023
        found = reference.predict(asked)
        other.append(family.score(found, known, asked, labels[test]))
        made: list[Fitted] = []
        fits.append(seconds(lambda: made.append(family.fit(known, labels[train]))))  # noqa: B023
        (model,) = made
        own.append(family.score(model.predict(asked), known, asked, labels[test]))
        for row in range(DELETIONS):
            deletions.append(seconds(lambda: model.delete(row)))  # noqa: B023
        rest = known[DELETIONS:], labels[train][DELETIONS:]
        verdicts.append(seconds(lambda: model.verify(*rest)))  # noqa: B023
    return Figures(
        rows=len(features),
        fit_seconds_ratio=mean(fits) / mean(references),
        delete_speedup=mean(fits) / mean(deletions),
        verified_delete_speedup=mean(fits) / (mean(deletions) + mean(verdicts)),
        accuracy=mean(own),
        accuracy_reference=mean(other),
    )


def are_numbers(labels: Numbers) -> bool:
    """Return whether labels are numbers to predict, and no classes."""
    return labels.dtype.kind == "f"


def fits_family(name: str, features: Numbers, labels: Numbers) -> bool:
    """Return whether a family can be measured on a data set."""
    if are_numbers(labels) != (name == "ridge-regressor"):
        return False
    return name != "multinomial-nb" or not (features < 0).any()  # it counts
