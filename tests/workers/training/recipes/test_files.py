"""Each class that a recipe may name: fitted, written, read again, predicting the same."""

import json
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from lethe.catalogue import CLASSIFIERS, REGRESSORS, TRANSFORMERS
from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError, RefusedError
from workers.training.recipes.files import FittedRecipe, decode, encode
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.recipe import Recipe, RecipeStep, build, known_parameters

rng = np.random.default_rng(0)
FEATURES = np.abs(rng.normal(size=(120, 4)))
THREE = (FEATURES[:, 0] > 0.5).astype(np.int64) + (FEATURES[:, 1] > 1)
TWO = (THREE > 0).astype(np.int64)
NUMBERS = 2 * FEATURES[:, 0] + FEATURES[:, 1]
SMALL = {"n_estimators": 3, "max_iter": 5, "n_components": 2}  # where a class has them
TREE = RecipeStep("sklearn.tree.DecisionTreeClassifier", {"max_depth": 3})
MISSING = ("lightgbm.", "xgboost.", "HistGradientBoosting", "RandomForest", "SimpleImputer")


def small(name: str) -> RecipeStep:
    """Return a class with parameters that keep its fit short."""
    known = known_parameters(RecipeStep(name, {}))
    wanted = SMALL if "ensemble" in name or name[0] in "lx" or "decomp" in name else {}
    return RecipeStep(name, {key: value for key, value in wanted.items() if key in known})


def reference(recipe: Recipe, table: FitRows) -> Any:
    """Fit with the library alone."""
    estimator = build(recipe, 1)
    labels = table.labels
    if recipe.classifies:
        labels = np.unique(labels, return_inverse=True)[1]
    return estimator.fit(table.features, labels)


def check_round_trip(recipe: Recipe, table: FitRows) -> FittedRecipe:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence
        data = fit(recipe, table, 1)
        assert fit(recipe, table, 2) == data
        read, theirs = decode(data), reference(recipe, table)
        assert encode(read) == data
        unseen = np.abs(np.random.default_rng(1).normal(size=(50, 4)))
        for one in (table.features, unseen):
            for method in ("predict", "predict_proba", "decision_function"):
                if hasattr(theirs, method):
                    found = getattr(read.estimator, method)(one)
                    assert np.array_equal(getattr(theirs, method)(one), found), method
    return read


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name: str, labels: Any) -> None:
    recipe = Recipe((small(name),), 3, None)
    read = check_round_trip(recipe, FitRows(FEATURES, labels))
    assert read.classes == tuple(np.unique(labels))
    assert set(read.predict(FEATURES)) <= set(read.classes)


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name: str) -> None:
    read = check_round_trip(Recipe((small(name),), 3, None), FitRows(FEATURES, NUMBERS))
    assert read.classes == ()
    assert read.predict(FEATURES).dtype == np.float64


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_pipelines(name: str) -> None:
    step = small(name)
    if name.endswith("GaussianRandomProjection"):
        step = RecipeStep(name, {"n_components": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_round_trip(Recipe((step, TREE), 3, None), FitRows(FEATURES, THREE))


@pytest.mark.parametrize(
    "name", [one for one in (*CLASSIFIERS, *REGRESSORS) if any(m in one for m in MISSING)]
)
def test_missing_values(name: str) -> None:
    holes = FEATURES.copy()
    holes[::7, 1] = np.nan
    recipe = Recipe((small(name),), 3, None)
    check_round_trip(recipe, FitRows(holes, THREE if recipe.classifies else NUMBERS))


@pytest.mark.parametrize("name", ["lightgbm.LGBMClassifier", "xgboost.XGBClassifier"])
def test_a_class_that_no_row_has_any_more(name: str) -> None:
    kept = THREE != 1
    recipe = Recipe((small(name),), 3, None)
    read = check_round_trip(recipe, FitRows(FEATURES[kept], THREE[kept]))
    assert read.classes == (0, 2)
    assert set(read.predict(FEATURES)) == {0, 2}


def test_one_class_and_no_row() -> None:
    recipe = Recipe((small("xgboost.XGBClassifier"),), 3, None)
    one = decode(fit(recipe, FitRows(FEATURES[:5], np.full(5, 2)), 1))
    assert one.predict(FEATURES).tolist() == [2] * len(FEATURES)
    none = fit(recipe, FitRows(FEATURES[:0], THREE[:0]), 1)
    assert encode(decode(none)) == none
    with pytest.raises(RefusedError, match="no row is left"):
        decode(none).predict(FEATURES)


class Other:
    """A class that files do not support."""


@pytest.mark.parametrize("value", [Other(), {1, 2}, b"bytes", print, 1j, np.array([1j])])
def test_an_attribute_of_another_type_is_not_written(value: Any) -> None:
    estimator = build(Recipe((TREE,), 0, None), 1)
    estimator.planted = value
    with pytest.raises(ArtifactError, match="the model file cannot hold"):
        encode(FittedRecipe(Recipe((TREE,), 0, None), 4, (0,), estimator))


def changed(data: bytes, old: str, new: str) -> bytes:
    """Return a file with another text in its metadata, or another array."""
    arrays, metadata = decode_tensors(data)
    text = json.dumps(metadata)
    assert old in text
    return encode_tensors(arrays, json.loads(text.replace(old, new)))


def test_a_file_that_was_tampered_with_is_not_read() -> None:
    data = fit(Recipe((TREE,), 0, None), FitRows(FEATURES, THREE), 1)
    for old, new in (
        ('"sklearn.tree.DecisionTreeClassifier", {', '"os.system", {'),
        ('"tree": [', '"eval": ['),
        ('"kind": "recipe/1"', '"kind": "recipe/2"'),
        ('"left_child"', '"left"'),
    ):
        with pytest.raises(ArtifactError):
            decode(changed(data, old, new))
    with pytest.raises(ArtifactError):
        decode(data[:-1])


def test_texts_are_not_padded_to_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = build(Recipe((TREE,), 0, None), 1).fit(FEATURES, THREE)
    estimator.planted = np.array(["a", "bc"], "<U4")
    data = encode(FittedRecipe(Recipe((TREE,), 0, None), 4, (0, 1, 2), estimator))
    padded = changed(data, '"<U4"', '"<U400000000"')
    read = decode(data).estimator.planted
    assert (read == estimator.planted).all()
    monkeypatch.setattr(np, "empty", lambda *_, **__: pytest.fail("padded"))
    with pytest.raises(ArtifactError, match="list of texts"):
        decode(padded)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("sklearn.tree.DecisionTreeClassifier", "left_child"),
        ("sklearn.tree.DecisionTreeClassifier", "feature"),
        ("sklearn.ensemble.HistGradientBoostingClassifier", "right"),
        ("sklearn.ensemble.HistGradientBoostingClassifier", "feature_idx"),
    ],
)
def test_a_tree_that_leads_out_of_its_memory_is_not_read(name: str, field: str) -> None:
    """Compiled code would follow it unchecked."""
    data = fit(Recipe((small(name),), 0, None), FitRows(FEATURES, THREE), 1)
    arrays, metadata = decode_tensors(data)
    fields = json.dumps(metadata).split(f'["{field}", "')[1][:6]
    arrays[fields][0] = 1_000_000
    with pytest.raises(ArtifactError, match="fetch the file again"):
        decode(encode_tensors(arrays, metadata))


@pytest.mark.parametrize(
    "name", ["sklearn.tree.DecisionTreeClassifier", "sklearn.ensemble.RandomForestClassifier"]
)
def test_a_tree_of_more_columns_than_its_estimator_is_not_read(name: str) -> None:
    """An ensemble does not compare the width of rows with that of its trees."""
    arrays, metadata = decode_tensors(
        fit(Recipe((small(name),), 0, None), FitRows(FEATURES, THREE), 1)
    )
    metadata["estimator"]["object"][1]["n_features_in_"] = 1
    with pytest.raises(ArtifactError, match="fetch the file again"):
        decode(encode_tensors(arrays, metadata))


@pytest.mark.parametrize(("kept", "counted"), [(None, 1_000_000), (0, 0)])
def test_a_tree_of_other_nodes_than_it_counts_is_not_read(
    kept: int | None, counted: int
) -> None:
    arrays, metadata = decode_tensors(
        fit(Recipe((TREE,), 0, None), FitRows(FEATURES, THREE), 1)
    )
    _, _, _, state = metadata["estimator"]["object"][1]["tree_"]["tree"]
    parts = dict(state["dict"])
    for name in [*dict(parts["nodes"]["records"]).values(), parts["values"]["array"]]:
        arrays[name] = arrays[name][:kept]
    state["dict"] = [*({**parts, "node_count": counted}).items()]
    with pytest.raises(ArtifactError, match="fetch the file again"):
        decode(encode_tensors(arrays, metadata))


def test_a_boosting_whose_trees_have_more_outputs_than_its_start_is_not_read() -> None:
    """Compiled code would write beyond its array of results."""
    name = "sklearn.ensemble.GradientBoostingClassifier"
    read = decode(fit(Recipe((small(name),), 0, None), FitRows(FEATURES, THREE), 1))
    read.estimator.estimators_ = np.tile(read.estimator.estimators_, (1, 50))
    with pytest.raises(ArtifactError, match="another number of outputs"):
        decode(encode(read))


@pytest.mark.parametrize(
    ("name", "parameters", "attribute"),
    [
        ("sklearn.linear_model.HuberRegressor", {}, "outliers_"),
        ("sklearn.ensemble.RandomForestRegressor", {"oob_score": True}, "oob_prediction_"),
        (
            "sklearn.ensemble.ExtraTreesRegressor",
            {"oob_score": True, "bootstrap": True},
            "oob_prediction_",
        ),
    ],
)
def test_a_file_has_no_number_for_each_row(
    name: str, parameters: dict[str, Any], attribute: str
) -> None:
    recipe = Recipe((RecipeStep(name, parameters),), 0, None)
    table = FitRows(FEATURES, NUMBERS)
    assert hasattr(reference(recipe, table), attribute)
    arrays, metadata = decode_tensors(fit(recipe, table, 1))
    assert attribute not in json.dumps(metadata)
    assert all(len(FEATURES) not in array.shape for array in arrays.values())


def told(data: bytes, **said: Any) -> bytes:
    """Return a file that says something else of its model, or of its estimator (`own`)."""
    arrays, metadata = decode_tensors(data)
    if "own" in said:
        metadata["estimator"]["object"][1] |= said.pop("own")
    return encode_tensors(arrays, metadata | said)


@pytest.mark.parametrize("number", ["0x1p+99999", "-0x1p+99999"])
def test_a_number_beyond_all_numbers_is_refused(number: str) -> None:
    data = fit(Recipe((TREE,), 0, None), FitRows(FEATURES, THREE), 1)
    with pytest.raises(ArtifactError):
        decode(told(data, own={"min_impurity_decrease": {"float": number}}))


def test_values_nested_too_deeply_are_refused() -> None:
    data = fit(Recipe((TREE,), 0, None), FitRows(FEATURES, THREE), 1)
    deep: Any = None
    for _ in range(400):
        deep = {"list": [deep]}
    with pytest.raises(ArtifactError):
        decode(told(data, own={"planted": deep}))


@pytest.mark.parametrize(
    "classes",
    [
        *([], [0], [0, 1], [0, 1, 2, 3], [0, 2, 1], [0, 1, 1], [-1, 0, 1], [0, 1, 10_000]),
        *([0, 1, 10**40], [0, 1, 2.0], [0, 1, "2"], [False, 1, 2]),
    ],
)
@pytest.mark.parametrize("name", ["sklearn.naive_bayes.GaussianNB", TREE.estimator])
def test_classes_are_those_of_the_estimator(name: str, classes: list[Any]) -> None:
    data = fit(Recipe((RecipeStep(name, {}),), 0, None), FitRows(FEATURES, THREE), 1)
    with pytest.raises(ArtifactError):
        decode(told(data, classes=classes))


@pytest.mark.parametrize("columns", [0, -1, 3, 5, 4.0, "4", True, 2**31, 10**40])
def test_columns_are_those_of_the_estimator(columns: Any) -> None:
    data = fit(Recipe((TREE,), 0, None), FitRows(FEATURES, THREE), 1)
    with pytest.raises(ArtifactError):
        decode(told(data, columns=columns))


def test_a_model_of_numbers_has_no_classes() -> None:
    line = Recipe((RecipeStep("sklearn.linear_model.Ridge", {}),), 0, None)
    data = fit(line, FitRows(FEATURES, NUMBERS), 1)
    assert decode(data).predict(FEATURES).shape == (len(FEATURES),)
    for classes in ([0], [0, 1]):
        with pytest.raises(ArtifactError):
            decode(told(data, classes=classes))
    with pytest.raises(ArtifactError):
        decode(told(fit(line, FitRows(FEATURES[:0], NUMBERS[:0]), 1), classes=[0]))


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("sklearn.linear_model.LogisticRegression", {"coef_": None}),
        ("sklearn.linear_model.LogisticRegression", {"coef_": {"float": "0x1p+1"}}),
        ("sklearn.linear_model.LogisticRegression", {"n_features_in_": 3}),
        ("sklearn.naive_bayes.GaussianNB", {"var_": {"list": []}}),
        ("sklearn.naive_bayes.GaussianNB", {"theta_": {"tuple": [1, 2]}}),
        ("sklearn.ensemble.RandomForestClassifier", {"estimators_": {"list": []}}),
        ("sklearn.ensemble.RandomForestRegressor", {"n_outputs_": 2}),
        # Each row was predicted 2^31 times, in 16 GiB.
        ("sklearn.tree.DecisionTreeClassifier", {"n_outputs_": 2**31}),
    ],
)
def test_an_estimator_that_cannot_predict_is_not_read(name: str, own: Any) -> None:
    """It was read, and predicting ended with whatever its library raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = NUMBERS if "Regressor" in name else THREE
        data = fit(Recipe((small(name),), 0, None), FitRows(FEATURES, labels), 1)
    with pytest.raises(ArtifactError):
        decode(told(data, own=own))


def test_an_estimator_that_has_no_memory_for_one_row_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "sklearn.naive_bayes.GaussianNB"
    data = fit(Recipe((small(name),), 0, None), FitRows(FEATURES, THREE), 1)

    def predict(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(GaussianNB, "predict", predict)
    with pytest.raises(ArtifactError, match="do not fit each other"):
        decode(data)


def test_a_model_that_takes_no_zeros_is_read() -> None:
    box_cox = RecipeStep("sklearn.preprocessing.PowerTransformer", {"method": "box-cox"})
    recipe = Recipe((box_cox, TREE), 0, None)
    read = decode(fit(recipe, FitRows(1 + FEATURES, THREE), 1))
    assert read.predict(1 + FEATURES).shape == THREE.shape
    with pytest.raises(ValueError, match="strictly positive"):
        read.predict(np.zeros((1, 4)))


def test_an_estimator_that_was_never_fitted_is_not_read() -> None:
    recipe = Recipe((TREE,), 0, None)
    with pytest.raises(ArtifactError):
        decode(encode(FittedRecipe(recipe, 4, (0, 1, 2), build(recipe, 1))))


def test_a_class_that_is_not_there_is_refused_when_it_is_predicted() -> None:
    """Only some rows lead to it: one row at reading does not find all of them."""
    recipe = Recipe((TREE,), 0, None)
    read = decode(fit(recipe, FitRows(FEATURES, THREE), 1))
    read.estimator.predict = lambda features: np.full(len(features), 7)
    with pytest.raises(ArtifactError, match="fetch the file again"):
        read.predict(FEATURES)
    read.estimator.predict = lambda features: np.array(["x"] * len(features))
    with pytest.raises(ArtifactError, match="fetch the file again"):
        read.predict(FEATURES)


def test_an_error_of_a_library_in_predicting_is_a_refusal() -> None:
    read = decode(fit(Recipe((TREE,), 0, None), FitRows(FEATURES, THREE), 1))

    def fails(_: Any) -> Any:
        raise IndexError("index 7 is out of bounds")

    read.estimator.predict = read.estimator.predict_proba = fails
    for asked in (read.predict, read.probabilities):
        with pytest.raises(ArtifactError, match="IndexError"):
            asked(FEATURES)


def test_rows_that_an_estimator_does_not_take_are_named_by_its_library() -> None:
    step = RecipeStep("sklearn.naive_bayes.GaussianNB", {})
    read = decode(fit(Recipe((step,), 0, None), FitRows(FEATURES, THREE), 1))
    with pytest.raises(ValueError, match="contains NaN"):
        read.predict(np.full((2, 4), np.nan))
