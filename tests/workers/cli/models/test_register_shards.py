"""`lethe model register recipe --shards`: measured beside one model of all rows."""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.schemas.families.shards import NewShards
from tests.workers.cli.models.registering import said
from tests.workers.cli.models.test_register_recipe import (
    LINE,
    TREES,
    Service,
    register,
    table,
)
from workers.errors import ArtifactError
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.recipe import Recipe
from workers.training.shards import container
from workers.training.shards.predict import ShardedModel


class ShardService(Service):
    """Fits each shard here; one has no rows, as may happen with few persons."""

    def register_model(self, manifest: dict[str, Any], data: bytes) -> None:
        self.wanted = NewShards.model_validate(manifest)
        with np.load(io.BytesIO(data)) as arrays:
            self.rows = {name: arrays[name] for name in arrays.files}
        assert self.wanted.recipe is not None
        recipe = Recipe.parse(self.wanted.recipe.spelled())
        features, labels = self.rows["features"], self.rows["labels"]
        shards = self.wanted.shards.count
        of = np.arange(len(labels)) % (shards - 1)
        weights = self.rows.get("weights")
        parts = [
            FitRows(features[own], labels[own], None if weights is None else weights[own])
            for own in (of == shard for shard in range(shards))
        ]
        files = [fit(recipe, one, 1) for one in parts]
        digests = [hashlib.sha256(b"").hexdigest()] * shards
        manifest_of = container.manifest_of(self.wanted.shards.aggregate, files, digests)
        self.file = container.encode(manifest_of, files)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> ShardService:
    def fit_all(recipe: Recipe, tables: Sequence[FitRows], *_: object) -> list[bytes]:
        return [fit(recipe, one, 1) for one in tables]

    found = ShardService()
    monkeypatch.setattr("workers.cli.service.connect", lambda url: found)
    monkeypatch.setattr(process, "fit_all", fit_all)
    return found


def test_shards_are_measured_beside_one_model(tmp_path: Path, service: ShardService) -> None:
    words = ("--label", "kind", "--features", "f*", "--shards", 3)
    data = table(tmp_path)
    found = register(tmp_path, TREES, data, *words, "--subject", "email")
    assert found.exit_code == 0, found.output
    assert "3 shards; each subject is in one of them" in found.output
    assert found.output.count("accuracy on 15 held-out rows: ") == 2
    assert "one model of all rows: accuracy on 15" in found.output
    assert service.wanted.shards.aggregate == "mean"
    found = register(tmp_path, TREES, data, *words, "--aggregate", "apart")
    assert "each record is in one" in found.output
    assert "shard 2: accuracy on 15 held-out rows: 0.000" in found.output  # it has no rows


def test_weights_and_categories_reach_the_shards_and_the_whole_model(
    tmp_path: Path, service: ShardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    columns = {
        "kind": ["a", "b"] * 30,
        "fx": np.arange(60.0),
        "fplan": ["small", "large", "small"] * 20,
        "w": np.arange(1.0, 61.0),
    }
    pq.write_table(pa.table(columns), path)
    whole: list[FitRows] = []

    def fit_all(recipe: Recipe, tables: Sequence[FitRows], *_: object) -> list[bytes]:
        whole.extend(tables)
        return [fit(recipe, one, 1) for one in tables]

    monkeypatch.setattr(process, "fit_all", fit_all)
    recipe = {**TREES, "categories": {"fplan": ["small", "large"]}}
    words = ("--label", "kind", "--features", "f*", "--shards", 3, "--sample-weight", "w")
    found = register(tmp_path, recipe, path, *words)
    assert found.exit_code == 0, found.output
    assert (service.wanted.weighted, service.wanted.features) == (True, ["fx", "fplan"])
    assert service.wanted.categories == {"fplan": ["small", "large"]}
    assert service.rows["weights"].tolist() == (service.rows["features"][:, 0] + 1).tolist()
    (one,) = whole
    assert one.weights is not None
    assert one.weights.tolist() == service.rows["weights"].tolist()


def test_numbers_and_votes(tmp_path: Path, service: ShardService) -> None:
    words = ("--label", "kind", "--features", "f*", "--shards", 3)
    found = register(tmp_path, LINE, table(tmp_path, numbers=True), *words)
    assert found.output.count("R² on 44 held-out rows: 0.") == 2
    features = service.rows["features"]
    own = [one for one in ShardedModel.from_bytes(service.file).shards if one is not None]
    mean = (own[0].predict(features) + own[1].predict(features)) / 2
    model = ShardedModel.from_bytes(service.file)
    assert np.array_equal(model.predict(features), mean)
    register(tmp_path, TREES, table(tmp_path), *words, "--aggregate", "vote")
    model = ShardedModel.from_bytes(service.file)
    features = service.rows["features"]
    votes = np.stack([one.predict(features) for one in model.shards if one is not None])
    expected = [np.bincount(column).argmax() for column in votes.T]
    assert model.predict(features).tolist() == expected


def test_a_changed_shard_is_not_read(tmp_path: Path, service: ShardService) -> None:
    words = ("--label", "kind", "--features", "f*", "--shards", 3)
    register(tmp_path, TREES, table(tmp_path), *words)
    manifest, files = container.decode(service.file)
    file = container.encode(manifest, [files[1], files[0], files[2]])
    with pytest.raises(ArtifactError, match="not the one in the manifest"):
        ShardedModel.from_bytes(file)


@pytest.mark.parametrize(
    ("recipe", "words", "problem"),
    [
        (TREES, ("--shards", 1), "--shards"),
        (TREES, ("--aggregate", "vote"), "--aggregate needs --shards"),
        (LINE, ("--shards", 3, "--aggregate", "vote"), "choose mean"),
        ({"estimator": "sklearn.svm.LinearSVC"}, ("--shards", 3), "choose vote"),
    ],
)
def test_nothing_is_sent_of_what_is_wrong(
    tmp_path: Path, service: ShardService, recipe: Any, words: tuple[Any, ...], problem: str
) -> None:
    data = table(tmp_path, numbers=recipe is LINE)
    found = register(tmp_path, recipe, data, "--label", "kind", "--features", "f*", *words)
    assert problem in said(found)
    assert service.rows == {}
