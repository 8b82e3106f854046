"""Invalid recipes: a class or a parameter outside the list, named in the refusal."""

from typing import Any

import pytest

from lethe.catalogue import CLASSIFIERS, REGRESSORS, TRANSFORMERS
from workers.errors import RefusedError
from workers.training.recipes.recipe import (
    FIXED,
    Recipe,
    RecipeStep,
    build,
    check,
    known_parameters,
)

FOREST = "sklearn.ensemble.RandomForestClassifier"
LIGHT = "lightgbm.LGBMClassifier"


def one(name: str, **parameters: Any) -> Recipe:
    return Recipe((RecipeStep(name, parameters),), 0, None)


@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS])
def test_every_estimator_is_built_with_seed_and_threads(name: str) -> None:
    recipe = Recipe((RecipeStep(name, {}),), 7, None)
    estimator = build(recipe, 3)
    known = known_parameters(recipe.steps[0])
    assert estimator.get_params().get("random_state", 7) == 7
    assert estimator.get_params().get("n_jobs", 3) == 3
    assert ("classifier" in str(estimator.__sklearn_tags__().estimator_type)) == (
        name in CLASSIFIERS
    )
    assert known


def test_every_transformer_transforms() -> None:
    for name in TRANSFORMERS:
        assert hasattr(
            build(Recipe((RecipeStep(name, {}), RecipeStep(FOREST, {})), 0, None), 1)[0],
            "transform",
        )


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (one("os.system"), "os.system"),
        (one("sklearn.svm.SVC"), "sklearn.svm.SVC"),
        (one("sklearn.preprocessing.StandardScaler"), "StandardScaler: not an estimator"),
        (Recipe((), 0, None), "not an estimator"),
        (
            Recipe((RecipeStep(FOREST, {}), RecipeStep(FOREST, {})), 0, None),
            "not a transformer",
        ),
        (one(FOREST, trees=5), "trees of .*: no such parameter"),
        (one(FOREST, n_estimators="many"), "'n_estimators' parameter"),
        (one(FOREST, n_estimators=-1), "'n_estimators' parameter"),
        (one(FOREST, class_weight={"0": 2}), "class_weight of .*: give a number"),
        (one(FOREST, max_features=[{"a": 1}]), "max_features of"),
        (one(LIGHT, n_estimators="many"), "n_estimators of .*: give a whole number"),
        (one(LIGHT, n_estimators=True), "n_estimators of .*: give a whole number"),
        (
            one(LIGHT, boosting_type="gbdt forcedbins_filename=/f"),
            "boosting_type of .*: give one word",
        ),
        (
            one(LIGHT, objective=["binary", "binary\tmachines=x:1"]),
            "objective of .*: give one word",
        ),
        (one(LIGHT, class_weight="a=b"), "class_weight of .*: give one word"),
        (one(LIGHT, learning_rate="fast"), "learning_rate of .*: give a number"),
        *((one(LIGHT, **{name: 1}), f"{name} of .*: a recipe cannot set it") for name in FIXED),
    ],
)
def test_what_is_no_recipe(recipe: Recipe, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        check(recipe)


def test_a_pair_is_a_list() -> None:
    scaler = RecipeStep("sklearn.preprocessing.MinMaxScaler", {"feature_range": [0, 2]})
    assert build(Recipe((scaler, RecipeStep(FOREST, {})), 0, None), 1)[0].feature_range == (
        0,
        2,
    )


def test_documents_are_read_back() -> None:
    recipe = Recipe((RecipeStep(FOREST, {"max_depth": 3}),), 5, 1)
    assert Recipe.parse(recipe.document) == recipe
    with pytest.raises(RefusedError, match="cannot be read"):
        Recipe.parse({"steps": [{}], "seed": 0, "threads": None})
