"""Of published models: files of recipes, shards, forests, sums and vector indexes.

What is read must also predict, or be exported: neither checks the file again.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.fuzz.mutate import NUMBERS as ODD
from benchmarks.fuzz.mutate import Mutator, as_json, as_model, as_tensors, plain
from benchmarks.fuzz.target import Target, Way
from lethe.estimators import container
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.forest.published import KIND, PublishedForest
from lethe.estimators.sums.config import KINDS, SumsConfig
from lethe.estimators.sums.published import read_published
from lethe.estimators.sums.sealed import of_nothing
from tests.lethe.estimators.forest.problem import fitted
from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError, RefusedError
from workers.training.recipes import files as recipes
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.recipe import Recipe, RecipeStep
from workers.training.shards import container as shards
from workers.training.shards.predict import ShardedModel
from workers.training.vectors import faiss_file, files
from workers.training.vectors.build import build
from workers.training.vectors.index import VectorOptions

RNG = np.random.default_rng(0)
FEATURES = np.abs(RNG.normal(size=(40, 4)))
CLASSES = np.arange(40) % 3
NUMBERS = FEATURES[:, 0] + FEATURES[:, 1]
ASKED = np.concatenate([FEATURES[:5], np.zeros((1, 4)), -1e9 * FEATURES[:2]])

STEPS: tuple[tuple[tuple[str, dict[str, Any]], ...], ...] = (
    (("sklearn.tree.DecisionTreeClassifier", {"max_depth": 3}),),
    (("sklearn.ensemble.RandomForestClassifier", {"n_estimators": 2, "max_depth": 2}),),
    (("sklearn.ensemble.GradientBoostingClassifier", {"n_estimators": 2, "max_depth": 2}),),
    (("sklearn.ensemble.HistGradientBoostingRegressor", {"max_iter": 2}),),
    (("sklearn.naive_bayes.GaussianNB", {}),),
    (("sklearn.linear_model.Ridge", {}),),
    (
        ("sklearn.impute.SimpleImputer", {}),
        ("sklearn.preprocessing.StandardScaler", {}),
        ("sklearn.linear_model.LogisticRegression", {}),
    ),
    (
        ("sklearn.preprocessing.PolynomialFeatures", {}),
        ("sklearn.decomposition.PCA", {"n_components": 2}),
        ("sklearn.discriminant_analysis.LinearDiscriminantAnalysis", {}),
    ),
)


def _array(rng: Random, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array with another value, shape or type."""
    roll = rng.random()
    if roll < 0.15:
        return array[: rng.randrange(len(array) + 1)] if array.ndim else array.reshape(1)
    if roll < 0.25:
        return array.reshape(rng.choice(((-1,), (1, *array.shape), array.shape[::-1])))
    if roll < 0.35:
        with np.errstate(all="ignore"):
            return array.astype(rng.choice(("u1", "i4", "i8", "f4", "f8")))
    if not array.size:
        return np.zeros(rng.choice((1, 2, 40)), array.dtype)
    changed = array.copy()
    odd = ODD if array.dtype.kind == "f" else (-1, 0, 1, 7, 127, 2**31 - 1, 2**62)
    with np.errstate(all="ignore"):
        value = np.float64(min(rng.choice(odd), 1e308)).astype(array.dtype)
    changed.flat[rng.randrange(array.size)] = value
    return changed


def _as_encoded(rng: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Change metadata or an array of a file of tensors, and write it as the encoder does."""
    try:
        arrays, metadata = decode_tensors(data)
        if arrays and rng.random() < 0.4:
            name = rng.choice(sorted(arrays))
            arrays[name] = _array(rng, arrays[name])
        else:
            metadata = json.loads(as_json(rng, json.dumps(metadata).encode(), corpus))
        return encode_tensors(arrays, metadata)
    except (ArtifactError, ValueError, RecursionError):
        return plain(rng, data, corpus)


def _as_packed(rng: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Change an array of a file of `lethe.estimators.container`."""
    try:
        header, arrays = container.unpack(data, KIND, *KINDS)
        at = rng.randrange(len(arrays))
        arrays[at] = _array(rng, arrays[at])
        return container.pack(header, arrays)
    except (EstimatorInputError, AssertionError, ValueError):
        return plain(rng, data, corpus)


MODEL: tuple[Mutator, ...] = (as_model, _as_packed, plain)
TENSORS: tuple[Mutator, ...] = (_as_encoded, _as_encoded, as_tensors, plain)


def _recipe(steps: Sequence[tuple[str, dict[str, Any]]]) -> bytes:
    recipe = Recipe(tuple(RecipeStep(*one) for one in steps), 0, None)
    labels = CLASSES if recipe.classifies else NUMBERS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(recipe, FitRows(FEATURES, labels), 1)


def _recipes() -> Sequence[bytes]:
    return [_recipe(steps) for steps in STEPS]


def _predicted(model: Any) -> object:
    """Predict, or say why the estimator's library refuses these rows."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return model.predict(ASKED)
        except ValueError as error:
            return Way(str(error)[:20])


def _shards() -> Sequence[bytes]:
    made = [_recipe(STEPS[0]), _recipe(STEPS[0])]
    rows = ["0" * 64] * 2
    return [
        shards.encode(shards.manifest_of(aggregate, made, rows), made)
        for aggregate in ("mean", "vote", "apart")
    ]


def _named(data: bytes) -> bytes:
    """Return a file of shards whose manifest names the digests that they have."""
    try:
        arrays, document = decode_tensors(data)
        for name, entry in zip(sorted(arrays), document["shards"], strict=True):
            entry["file"] = sha256(arrays[name].tobytes()).hexdigest()
        return encode_tensors(arrays, document)
    except (ArtifactError, AttributeError, KeyError, TypeError, ValueError):
        return data


def _within_shards(rng: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Change what stands in the first shard."""
    try:
        manifest, found = shards.decode(data)
    except ArtifactError:
        return plain(rng, data, corpus)
    own = [_as_encoded(rng, found[0], found), *found[1:]] if found else []
    return _named(shards.encode(manifest, own))


def _forest(data: bytes) -> object:
    forest = PublishedForest.from_bytes(data)
    features = np.zeros((2, len(forest.config.bins.edges)))
    return forest.probabilities(features) if forest.config.classes else forest.means(features)


def _sums(data: bytes) -> object:
    found = read_published(data)
    with np.errstate(all="ignore"):
        return found.predict(np.ones((2, found.columns)))


def _published_sums() -> Sequence[bytes]:
    made = []
    for kind in ("ridge-classifier", "ridge-regressor", "gaussian-nb", "multinomial-nb"):
        classes = 0 if kind == "ridge-regressor" else 3
        config = SumsConfig(kind=kind, columns=4, classes=classes)
        rows = config.coded(FEATURES, CLASSES if classes else NUMBERS, np.ones(40))
        names = [["str", f"class {n}"] for n in range(classes)]
        made.append(of_nothing(config).changed(rows, 1).published(names).to_bytes())
    return made


def _index(data: bytes) -> object:
    index = files.decode(data)
    queries = np.ones((2, index.options.columns), np.float32)
    return faiss_file.to_bytes(index), faiss_file.search(index, queries, 3)


def _indexes() -> Sequence[bytes]:
    vectors = RNG.normal(size=(60, 5)).astype(np.float32)
    ids = [f"id {row}" for row in range(60)]
    made = []
    for kind, centroids in (("flat", 0), ("ivf", 4), ("hnsw", 0)):
        options = VectorOptions(kind, "l2", 5, 2, vectors[:centroids], 4, 20, 16, 1)
        made += [files.encode(build(options, ids[:n], vectors[:n])) for n in (0, 60)]
    return made


def _read(decode: Callable[[bytes], Any]) -> Callable[[bytes], object]:
    return lambda data: _predicted(decode(data))


TARGETS = (
    Target("recipe-file", _read(recipes.decode), _recipes, (RefusedError,), TENSORS),
    Target(
        "shards-file",
        lambda data: _predicted(ShardedModel.from_bytes(_named(data))),
        _shards,
        (RefusedError,),
        (*TENSORS, _within_shards),
    ),
    Target(
        "forest-file",
        _forest,
        lambda: [fitted(classes).published().to_bytes() for classes in (0, 2, 3)],
        (EstimatorInputError,),
        MODEL,
    ),
    Target("sums-file", _sums, _published_sums, (EstimatorInputError,), MODEL),
    Target("vector-index", _index, _indexes, (ArtifactError,), TENSORS),
)
