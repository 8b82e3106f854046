"""ONNX of recipes and forests gives the labels that Lethe gives, on rows that were not fitted.

The oracle is the library itself, fitted on the same rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from lethe.estimators.forest.bins import Bins
from lethe.estimators.forest.forest import Forest
from lethe.estimators.forest.published import ForestConfig
from workers.errors import ArtifactError, RefusedError
from workers.families import base
from workers.training.recipes.files import decode
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.recipe import Recipe, RecipeStep

Numbers = NDArray[Any]
SCALED = ("sklearn.impute.SimpleImputer", "sklearn.preprocessing.StandardScaler")
SMALL = {"n_estimators": 15}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "lightgbm.LGBMClassifier": SMALL,
    "sklearn.ensemble.HistGradientBoostingClassifier": {"max_iter": 15},
    "sklearn.ensemble.RandomForestClassifier": SMALL,
    "sklearn.linear_model.RidgeClassifier": {},
    "sklearn.naive_bayes.GaussianNB": {},
    "xgboost.XGBClassifier": SMALL,
}
REGRESSORS: dict[str, dict[str, Any]] = {
    "lightgbm.LGBMRegressor": SMALL,
    "sklearn.ensemble.HistGradientBoostingRegressor": {"max_iter": 15},
    "sklearn.ensemble.RandomForestRegressor": SMALL,
    "sklearn.linear_model.Ridge": {},
    "xgboost.XGBRegressor": SMALL,
}
TAKE_NAN = ("lightgbm", "Hist", "xgboost")


def float32(rows: Numbers) -> Numbers:
    """Return rows rounded to float32, as float64."""
    return rows.astype(np.float32).astype(np.float64)


def recipe(*steps: tuple[str, dict[str, Any]]) -> Recipe:
    return Recipe(tuple(RecipeStep(name, given) for name, given in steps), 0, 1)


def ran(model: bytes, rows: Numbers, dtype: type = np.float32) -> dict[str, Numbers]:
    session = onnxruntime.InferenceSession(model)
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, {"features": rows.astype(dtype)}), strict=True))


def exported(
    file: bytes, classes: Sequence[str], family: str = "recipe", **config: Any
) -> bytes:
    kind = base.configured({"family": family})
    assert "onnx" in kind.formats
    model = kind.export(file, "onnx", classes, config)
    assert model == kind.export(file, "onnx", classes, config)
    return model


@pytest.mark.parametrize("scaled", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_gives_the_same_labels(name: str, scaled: bool) -> None:
    for load in (load_breast_cancer, load_digits):
        features, labels = load(return_X_y=True)
        features = float32(features)
        if scaled or any(one in name for one in TAKE_NAN):
            # Missing more often in one class and in informative columns: NaN must take the same
            # branch.
            gone = np.random.default_rng(0).random(len(labels)) < np.where(
                labels == 0, 0.6, 0.1
            )
            features[gone, 20:28] = np.nan
        names = [f"class {place}" for place in range(labels.max() + 1)]
        before: list[tuple[str, dict[str, Any]]] = [(one, {}) for one in SCALED if scaled]
        made = recipe(*before, (name, CLASSIFIERS[name]))
        file = fit(made, FitRows(features[::2], labels[::2]), 1)
        expected = np.array(names)[decode(file).predict(features)]
        found = ran(exported(file, names), features)["label"]
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_gives_the_same_numbers(name: str) -> None:
    features, targets = load_diabetes(return_X_y=True)
    features = float32(features)
    file = fit(recipe((name, REGRESSORS[name])), FitRows(features[::2], targets[::2]), 1)
    found = ran(exported(file, ()), features)["value"]
    np.testing.assert_allclose(found, decode(file).predict(features), rtol=1e-6)


def test_a_class_that_no_row_has_any_more_keeps_the_others_in_place() -> None:
    features, labels = load_digits(return_X_y=True)
    names = [f"digit {place}" for place in range(10)]
    for kept in ([2, 7], [7], [1, 4, 8]):
        rows = np.isin(labels, kept)
        made = recipe(("sklearn.ensemble.RandomForestClassifier", SMALL))
        file = fit(made, FitRows(features[rows], labels[rows]), 1)
        expected = np.array(names)[decode(file).predict(features)]
        assert ran(exported(file, names), features)["label"].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (
            [("sklearn.kernel_approximation.RBFSampler", {"n_components": 3})],
            "sklearn.kernel_approximation.RBFSampler cannot be converted",
        ),
        (
            [("sklearn.preprocessing.PolynomialFeatures", {})],
            "sklearn.preprocessing.PolynomialFeatures cannot be converted",
        ),
        (
            [("sklearn.impute.SimpleImputer", {"add_indicator": True})],
            "sklearn.impute.SimpleImputer cannot be converted",
        ),
    ],
)
def test_a_step_without_a_converter_is_named(steps: Any, wanted: str) -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    made = recipe(*steps, ("sklearn.naive_bayes.GaussianNB", {}))
    file = fit(made, FitRows(features, labels), 1)
    with pytest.raises(RefusedError, match=wanted):
        exported(file, ["a", "b"])


def test_what_lightgbm_transforms_is_refused() -> None:
    features, targets = load_diabetes(return_X_y=True)
    made = recipe(("lightgbm.LGBMRegressor", {"objective": "poisson", **SMALL}))
    with pytest.raises(RefusedError, match="poisson"):
        exported(fit(made, FitRows(features, targets), 1), ())


def forest_file(features: Numbers, targets: Numbers, classes: int) -> tuple[bytes, Any]:
    bins = Bins.of_public_rows(features[1::2], missing=True)
    config = ForestConfig(
        bins=bins,
        classes=classes,
        trees=10,
        depth=8,
        least=1,
        group=3,
        thresholds=8,
        seed=0,
        prior=1,
    )
    forest = Forest(config)
    learned = features[::2]
    forest.add([str(place) for place in range(len(learned))], learned, targets[::2])
    return forest.published().to_bytes(), forest.published()


def on_edges(features: Numbers) -> Numbers:
    """Return rows with values on the edges of bins, just beside them, or missing."""
    rows = features.copy()
    edges = Bins.of_public_rows(features[1::2], missing=True).edges
    for column, own in enumerate(edges):
        if len(own):
            at = own[np.arange(len(rows)) % len(own)]
            sides = np.stack(
                [at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf), rows[:, column]]
            )
            rows[:, column] = sides[np.arange(len(rows)) % 4, np.arange(len(rows))]
    rows[::5, 0] = np.nan
    return rows


@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
def test_a_forest_gives_the_same_labels(load: Any) -> None:
    features, labels = load(return_X_y=True)
    features[::9, 2] = np.nan
    names = [f"class {place}" for place in range(labels.max() + 1)]
    file, published = forest_file(features, labels, len(names))
    rows = on_edges(features)
    found = ran(exported(file, names, "forest"), rows, np.float64)
    shares = published.probabilities(rows)
    np.testing.assert_array_equal(found["probabilities"], shares)
    assert found["label"].tolist() == np.array(names)[shares.argmax(axis=1)].tolist()


def test_a_forest_of_numbers_gives_the_same_numbers() -> None:
    features, targets = load_diabetes(return_X_y=True)
    whole = np.rint(targets * 1000).astype(np.int64) - 150_000
    file, published = forest_file(features, whole, 0)
    rows, step = on_edges(features), 2**-10
    model = exported(file, (), "forest", forest={"step": step.hex()})
    found = ran(model, rows, np.float64)["value"]
    np.testing.assert_array_equal(found, published.means(rows) * step)


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ArtifactError):
        exported(b"{}", ["a"], "forest")
    with pytest.raises(ArtifactError):
        exported(b"{}", ["a"])


def test_a_forest_is_offered_in_onnx_alone() -> None:
    """A family must write its inherited formats itself: once, it wrote another family's."""
    assert base.configured({"family": "forest"}).formats == ("onnx",)
