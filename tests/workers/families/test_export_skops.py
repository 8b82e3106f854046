"""Recipes in skops: scikit-learn's own estimators, with the labels that Lethe gives."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from lethe.catalogue import CLASSIFIERS, REGRESSORS, RecipeClass
from workers.errors import RefusedError
from workers.families import base
from workers.training.recipes.files import decode
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.recipe import Recipe, RecipeStep

NAMES = ["zero", "one", "two", "never fitted"]
OWN = {"sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis": {"reg_param": 0.1}}
QUICK = ("RandomForestClassifier", "RidgeClassifier", "GaussianNB", "Ridge")
ALL = [one for one in (*CLASSIFIERS, *REGRESSORS) if one.startswith("sklearn.")]


def digits() -> tuple[Any, Any, Any]:
    features, labels = load_digits(return_X_y=True)
    kept = labels < 3
    features, labels = features[kept].astype(np.float64), labels[kept].astype(np.int64)
    return features[100:], labels[100:], features[:100]


def made(name: str, features: Any, labels: Any) -> bytes:
    steps = (
        RecipeStep("sklearn.preprocessing.MinMaxScaler", {}),
        RecipeStep(name, OWN.get(name, {})),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence and collinear columns
        return fit(Recipe(steps, 0, 1), FitRows(features, labels), 1)


def exported(file: bytes, classes: list[str]) -> Any:
    """Return what scikit-learn reads from the download, trusting only its own classes."""
    import skops.io  # takes seconds where many modules are loaded

    family = base.configured({"family": "recipe"})
    assert "skops" in family.formats
    data = family.export(file, "skops", classes, {})
    kinds = skops.io.get_untrusted_types(data=data)
    assert all(one.startswith("sklearn.") for one in kinds)
    return skops.io.loads(data, trusted=kinds)


@pytest.mark.parametrize(
    "name",
    [one if one.endswith(QUICK) else pytest.param(one, marks=pytest.mark.full) for one in ALL],
)
def test_scikit_learn_answers_as_lethe(name: RecipeClass) -> None:
    features, labels, rows = digits()
    wanted = labels if name in CLASSIFIERS else labels + 0.5
    file = made(name, features, wanted)
    mine = decode(file).predict(rows)
    model = exported(file, NAMES if name in CLASSIFIERS else [])
    if name in CLASSIFIERS:
        assert model.predict(rows).tolist() == [NAMES[place] for place in mine]
        assert len(set(mine.tolist())) == 3
    else:
        assert np.array_equal(model.predict(rows), mine)


def test_a_class_that_an_erasure_removed_keeps_the_others_names() -> None:
    features, labels, rows = digits()
    rest = labels != 1
    file = made("sklearn.naive_bayes.GaussianNB", features[rest], labels[rest])
    assert set(exported(file, NAMES).predict(rows)) == {"zero", "two"}
    one = labels == 2
    file = made("sklearn.naive_bayes.GaussianNB", features[one], labels[one])
    assert set(exported(file, NAMES).predict(rows)) == {"two"}


def test_what_skops_cannot_hold_is_refused() -> None:
    features, labels, _ = digits()
    family = base.configured({"family": "recipe"})
    file = made("lightgbm.LGBMClassifier", features, labels)
    with pytest.raises(RefusedError, match="skops holds estimators of scikit-learn"):
        family.export(file, "skops", NAMES, {})
    empty = made("sklearn.naive_bayes.GaussianNB", features[:0], labels[:0])
    with pytest.raises(RefusedError, match="no row is left"):
        family.export(empty, "skops", NAMES, {})
