"""The rows that recipes declare they accept; the oracle is a fit on such rows."""

import warnings
from typing import Any

import numpy as np
import pytest

from lethe.catalogue import CLASSIFIERS, REGRESSORS
from workers.errors import RefusedError
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.recipe import Recipe, RecipeStep, check_rows

WHOLE = np.abs(np.random.default_rng(0).normal(size=(60, 3)))
HOLES = WHOLE.copy()
HOLES[[0, 7], 1] = np.nan
NAMES = ("age", "calls", "months")
BAYES = "sklearn.naive_bayes.GaussianNB"


def recipe(*estimators: str) -> Recipe:
    return Recipe(tuple(RecipeStep(one, {}) for one in estimators), 0, 1)


def works(wanted: Recipe, features: Any, weights: Any) -> bool:
    numbers = WHOLE[:, 0] + 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit(wanted, FitRows(features, (numbers > 0.5).astype(np.int64), weights), 1)
        except (RefusedError, TypeError, ValueError):
            return False
    return True


def taken(wanted: Recipe, features: Any, weights: Any) -> bool:
    try:
        check_rows(wanted, features, NAMES, weighted=weights is not None)
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize("estimator", [*CLASSIFIERS, *REGRESSORS])
def test_estimators_say_what_they_take(estimator: str) -> None:
    wanted = recipe(estimator)
    assert taken(wanted, HOLES, None) == works(wanted, HOLES, None)
    assert taken(wanted, WHOLE, np.ones(60)) == works(wanted, WHOLE, np.ones(60))


def test_the_first_column_with_holes_is_named() -> None:
    scaler = "sklearn.preprocessing.StandardScaler"  # lets them through
    for steps in ((BAYES,), (scaler, BAYES), (BAYES,)):
        with pytest.raises(RefusedError, match=rf"calls: 2 of 60 .*, and {BAYES} takes none"):
            check_rows(recipe(*steps), HOLES, NAMES, weighted=False)
    with pytest.raises(RefusedError, match="feature 1: 2 of 60"):
        check_rows(recipe(BAYES), HOLES, (), weighted=False)
    check_rows(recipe("sklearn.impute.SimpleImputer", BAYES), HOLES, NAMES, weighted=False)
    check_rows(recipe(BAYES), WHOLE, NAMES, weighted=True)


def test_weights_that_an_estimator_does_not_take() -> None:
    discriminant = "sklearn.discriminant_analysis.LinearDiscriminantAnalysis"
    with pytest.raises(RefusedError, match="LinearDiscriminantAnalysis: takes no sample"):
        check_rows(recipe(discriminant), WHOLE, NAMES, weighted=True)
