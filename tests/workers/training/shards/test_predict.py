"""Predictions of shards in a separate process, as each version is measured."""

import json

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from workers.errors import ArtifactError
from workers.families.shards.family import READER
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.process import Limits
from workers.training.recipes.recipe import Recipe, RecipeStep
from workers.training.shards import container
from workers.training.shards.container import ShardEntry, ShardManifest
from workers.training.shards.predict import ShardedModel

RECIPE = Recipe((RecipeStep("sklearn.naive_bayes.GaussianNB", {}),), 0, None)


def test_a_file_predicts_the_mean_of_its_shards() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(90, 3))
    labels = (features[:, 0] > 0).astype(np.int64) + (features[:, 1] > 0)
    # The second shard has not seen the class 1.
    parts = [np.arange(45), np.flatnonzero(labels != 1)]
    files = [fit(RECIPE, FitRows(features[own], labels[own]), 1) for own in parts]
    manifest = container.manifest_of("mean", files, ["0" * 64] * 2)
    file = container.encode(manifest, files)
    limits = Limits(seconds=120, memory=4 << 30)
    found = process.predict(file, features, limits, READER)
    sums = GaussianNB().fit(features[parts[0]], labels[parts[0]]).predict_proba(features)
    other = GaussianNB().fit(features[parts[1]], labels[parts[1]]).predict_proba(features)
    sums[:, [0, 2]] += other
    assert np.array_equal(found, sums.argmax(axis=1))


@pytest.mark.parametrize("number", [1, 2**60, True, "\ud800"])
@pytest.mark.parametrize("place", ["aggregate", "file", "rows"])
def test_a_manifest_holds_texts(place: str, number: object) -> None:
    document = ShardManifest("vote", (ShardEntry("a" * 64, "b" * 64),)).document
    (document if place == "aggregate" else document["shards"][0])[place] = number
    with pytest.raises(ArtifactError):
        ShardManifest.from_bytes(json.dumps(document, separators=(",", ":")).encode())


def of_shards(aggregate: str, *files: bytes) -> bytes:
    """Return a version's file."""
    manifest = container.manifest_of(aggregate, files, ["0" * 64] * len(files))
    return container.encode(manifest, files)


def test_shards_of_different_models_are_not_read() -> None:
    """Their predictions would be added up, or end with an error of numpy."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(40, 3)), np.arange(40) % 3
    own = fit(RECIPE, FitRows(features, labels), 1)
    numbers = Recipe((RecipeStep("sklearn.linear_model.Ridge", {}),), 0, None)
    narrow = fit(RECIPE, FitRows(features[:, :2], labels), 1)
    for other in (narrow, fit(numbers, FitRows(features, labels.astype(np.float64)), 1)):
        with pytest.raises(ArtifactError, match="fetch the file again"):
            ShardedModel.from_bytes(of_shards("vote", own, other))
    read = ShardedModel.from_bytes(of_shards("vote", own, own))
    assert len(read.predict(features)) == len(features)


@pytest.mark.parametrize("aggregate", ["", "median"])
def test_shards_that_answer_in_no_known_way_are_not_read(aggregate: str) -> None:
    rows = FitRows(np.eye(3), np.arange(3))
    with pytest.raises(ArtifactError, match="fetch the file again"):
        ShardedModel.from_bytes(of_shards(aggregate, fit(RECIPE, rows, 1)))
