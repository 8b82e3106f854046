"""Exports of shards give Lethe's labels on rows that were not fitted, in other programs.

The oracle sums the predictions of the libraries' own estimators, fitted here on each share.
"""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits

from workers.errors import ArtifactError, RefusedError
from workers.families import base
from workers.training.recipes.files import decode
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.recipe import Recipe, RecipeStep
from workers.training.shards import container
from workers.training.shards.predict import ShardedModel

Numbers = NDArray[Any]
SHARDS = 3
TREE = "sklearn.tree._tree.Tree"
SOFT: dict[str, dict[str, Any]] = {
    "sklearn.ensemble.HistGradientBoostingClassifier": {"max_iter": 5},
    "sklearn.ensemble.RandomForestClassifier": {"n_estimators": 7},
    "sklearn.linear_model.LogisticRegression": {"max_iter": 50},
    "sklearn.linear_model.SGDClassifier": {"loss": "log_loss"},
    "sklearn.naive_bayes.GaussianNB": {},
    "lightgbm.LGBMClassifier": {"n_estimators": 5},
    "xgboost.XGBClassifier": {"n_estimators": 5},
}


def made(
    name: str,
    given: dict[str, Any],
    aggregate: str,
    data: tuple[Numbers, Numbers],
    *,
    empty: bool = False,
) -> bytes:
    """Return a version's file: the last shard lacks a class; the second may have no rows."""
    features, labels = data
    recipe = Recipe((RecipeStep(name, given),), 0, 1)
    files = []
    for place in range(SHARDS):
        own = np.arange(len(labels)) % SHARDS == place
        if place == 1 and empty:
            own[:] = False
        if place == SHARDS - 1 and labels.dtype.kind == "i" and empty:
            own &= labels != labels.max() - 1
        files.append(fit(recipe, FitRows(features[own], labels[own]), 1))
    manifest = container.manifest_of(aggregate, files, ["0" * 64] * SHARDS)
    return container.encode(manifest, files)


def exported(file: bytes, form: str, classes: list[str], **config: Any) -> bytes:
    kind = base.configured({"family": "shards"})
    assert form in kind.formats
    return kind.export(file, form, classes, config)


def ran(model: bytes, rows: Numbers) -> dict[str, Numbers]:
    session = onnxruntime.InferenceSession(model)
    names = [one.name for one in session.get_outputs()]
    given = {"features": rows.astype(np.float32)}
    return dict(zip(names, session.run(None, given), strict=True))


def digits(classes: int) -> tuple[Numbers, Numbers, Numbers, list[str]]:
    features, labels = load_digits(return_X_y=True)
    kept = labels < classes
    features, labels = features[kept].astype(np.float64), labels[kept].astype(np.int64)
    held = np.arange(len(labels)) % 4 == 0
    return (
        features[~held],
        labels[~held],
        features[held],
        [f"digit {n}" for n in range(classes)],
    )


def summed(file: bytes, rows: Numbers, classes: int, aggregate: str) -> Numbers:
    """The shards' joint prediction, by the libraries' predict and predict_proba alone."""
    total = np.zeros((len(rows), classes))
    for data in container.decode(file)[1]:
        one = decode(data)
        if one.estimator is None:
            continue
        if aggregate == "vote":
            for row, label in enumerate(one.estimator.predict(rows)):
                total[row, one.classes[int(label)]] += 1
        else:
            total[:, list(one.classes)] += one.estimator.predict_proba(rows)
    return total


QUICK = [
    ("sklearn.ensemble.HistGradientBoostingClassifier", "mean", 2),
    ("sklearn.ensemble.RandomForestClassifier", "vote", 4),
    ("sklearn.linear_model.LogisticRegression", "mean", 4),
]
CASES = [(name, how, 2 if how == "mean" else 4) for name in SOFT for how in ("mean", "vote")]
MORE = [pytest.param(*one, marks=pytest.mark.full) for one in CASES if one not in QUICK]


@pytest.mark.filterwarnings("ignore")  # of convergence, and of missing feature names
@pytest.mark.parametrize(("name", "aggregate", "classes"), [*QUICK, *MORE])
def test_the_labels_of_onnx_are_those_of_lethe(name: str, classes: int, aggregate: str) -> None:
    features, labels, rows, names = digits(classes)
    data = (features, labels)
    file = made(name, SOFT[name], aggregate, data, empty=classes > 2)
    found = ran(exported(file, "onnx", names), rows)
    places = ShardedModel.from_bytes(file).predict(rows)
    total = summed(file, rows, classes, aggregate)
    assert places.tolist() == total.argmax(axis=1).tolist()
    assert found["label"].tolist() == [names[place] for place in places]
    shares = total / total.sum(axis=1, keepdims=True)
    assert np.allclose(found["probabilities"], shares, atol=1e-5)


def test_a_graph_of_other_shards_gives_other_labels() -> None:
    """The comparison notices a shard that is left out."""
    features, labels, rows, names = digits(4)
    name = "sklearn.naive_bayes.GaussianNB"
    whole = made(name, {}, "mean", (features, labels))
    part = made(name, {}, "mean", (features, labels), empty=True)
    assert (ran(exported(part, "onnx", names), rows)["label"].tolist()) != [
        names[place] for place in ShardedModel.from_bytes(whole).predict(rows)
    ]


def test_numbers_and_shards_apart() -> None:
    features, numbers = load_diabetes(return_X_y=True)
    features = features.astype(np.float32).astype(np.float64)
    name = "sklearn.ensemble.HistGradientBoostingRegressor"
    data, rows = (features[100:], numbers[100:]), features[:100]
    file = made(name, {"max_iter": 5}, "mean", data, empty=True)
    wanted = ShardedModel.from_bytes(file).predict(rows)
    assert np.allclose(ran(exported(file, "onnx", []), rows)["value"], wanted, rtol=1e-6)
    apart = made(name, {"max_iter": 5}, "apart", data, empty=True)
    found = ran(exported(apart, "onnx", []), rows)
    wanted = ShardedModel.from_bytes(apart).predict(rows)
    assert list(found) == ["value_000", "value_002"]
    assert np.allclose(found["value_000"], wanted[0], rtol=1e-6)
    assert np.allclose(found["value_002"], wanted[2], rtol=1e-6)
    features, labels, rows, names = digits(4)
    apart = made("sklearn.naive_bayes.GaussianNB", {}, "apart", (features, labels), empty=True)
    found = ran(exported(apart, "onnx", names), rows)
    wanted = ShardedModel.from_bytes(apart).predict(rows)
    for place in (0, 2):
        labelled = [names[one] for one in wanted[place]]
        assert found[f"label_{place:03}"].tolist() == labelled


@pytest.mark.parametrize("aggregate", ["mean", "vote"])
def test_skops_holds_a_vote_of_scikit_learn(aggregate: str) -> None:
    import skops.io  # takes seconds where many modules are loaded

    features, labels, rows, names = digits(4)
    for name in ("sklearn.ensemble.RandomForestClassifier", "sklearn.naive_bayes.GaussianNB"):
        file = made(name, SOFT[name], aggregate, (features, labels))
        model = skops.io.loads(exported(file, "skops", names), trusted=[TREE])
        wanted = [names[place] for place in ShardedModel.from_bytes(file).predict(rows)]
        assert model.predict(rows).tolist() == wanted
    numbers = (features, labels.astype(np.float64))
    file = made("sklearn.linear_model.Ridge", {}, "mean", numbers)
    model = skops.io.loads(exported(file, "skops", []))
    assert np.allclose(model.predict(rows), ShardedModel.from_bytes(file).predict(rows))


def test_what_cannot_be_converted_is_refused_by_name() -> None:
    features, labels, _, names = digits(4)
    name = "sklearn.naive_bayes.GaussianNB"
    file = made(name, {}, "vote", (features, labels), empty=True)
    with pytest.raises(RefusedError, match="has not seen every class"):
        exported(file, "skops", names)
    with pytest.raises(RefusedError, match="apart"):
        exported(made(name, {}, "apart", (features, labels)), "skops", names)
    lightgbm = made("lightgbm.LGBMClassifier", {"n_estimators": 2}, "vote", (features, labels))
    with pytest.raises(RefusedError, match="scikit-learn"):
        exported(lightgbm, "skops", names)
    with pytest.raises(RefusedError, match="program"):
        exported(file, "onnx", names, script={})
    with pytest.raises(RefusedError, match="no row"):
        exported(made(name, {}, "mean", (features[:0], labels[:0])), "onnx", names)
    damaged = file.replace(b"fitted", b"fittex", 1) if b"fitted" in file else file[:-1] + b"x"
    with pytest.raises(ArtifactError):
        exported(damaged, "onnx", names)
