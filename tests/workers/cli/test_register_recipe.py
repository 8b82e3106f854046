"""`lethe model register --recipe`: tables and .npz, measured on held-out rows."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import load_diabetes, load_iris

from app.schemas.recipes import NewRecipe
from app.uploads.rows import parse_table
from lethe.identity import COLUMN
from tests.uploads import parsed
from workers.cli import model
from workers.training.recipes.fit import FitRows, fit
from workers.training.recipes.recipe import Recipe

TREES = {
    "estimator": "sklearn.ensemble.HistGradientBoostingClassifier",
    "parameters": {"max_iter": 10},
}
LINE = {
    "steps": [
        {"estimator": "sklearn.preprocessing.StandardScaler"},
        {"estimator": "sklearn.linear_model.Ridge"},
    ]
}


class Service:
    """Takes a registration as the API does, and fits it here."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.file = b""

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def register_model(self, manifest: dict[str, Any], data: bytes) -> None:
        wanted = NewRecipe.model_validate(manifest)
        parse = partial(
            parse_table, columns=wanted.columns, classes=len(wanted.classes), max_bytes=1 << 24
        )
        parsed(data, parse)
        with np.load(io.BytesIO(data)) as arrays:
            self.rows = {name: arrays[name] for name in arrays.files}
        recipe = Recipe.parse(wanted.recipe.spelled())
        self.file = fit(recipe, FitRows(self.rows["features"], self.rows["labels"]), 1)

    def model(self, ref: str) -> dict[str, Any]:
        return {"state": "ready", "current_version": 1}

    def artifact(self, ref: str, number: int) -> bytes:
        return self.file


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()
    monkeypatch.setattr("workers.cli.service.connect", lambda url: found)
    return found


def register(folder: Path, recipe: Any, *words: object) -> Result:
    file = folder / "recipe.json"
    file.write_text(recipe if isinstance(recipe, str) else json.dumps(recipe))
    arguments = ["register", "--url", "http://x", "--ref", "m", "--recipe", file, *words]
    return CliRunner().invoke(model.model, [str(word) for word in arguments])


def table(folder: Path, *, numbers: bool = False) -> Path:
    features, labels = (load_diabetes if numbers else load_iris)(return_X_y=True)
    features = features[:, :4].copy()
    features[::9, 1] = 0.0 if numbers else np.nan
    columns = {f"f{number}": features[:, number] for number in range(4)}
    names = labels if numbers else np.array(["setosa", "versicolor", "virginica"])[labels]
    people = [f"p{row}@example.org" for row in range(len(labels))]
    path = folder / "rows.parquet"
    pq.write_table(pa.table({**columns, "kind": names, "email": people}), path)
    return path


def test_a_table_with_holes_and_people(tmp_path: Path, service: Service) -> None:
    words = ("--label", "kind", "--features", "f*", "--person", "email=email")
    found = register(tmp_path, TREES, table(tmp_path), *words)
    assert found.exit_code == 0, found.output
    assert "135 records of 1 subject and 1 client;" in found.output
    assert "only their ids and hashed identities are sent" in found.output
    assert "accuracy on 15 held-out rows: 0." in found.output or "rows: 1.000" in found.output
    assert np.isnan(service.rows["features"]).any()
    assert COLUMN + "email" in service.rows
    assert b"example.org" not in b"".join(one.tobytes() for one in service.rows.values())


def test_numbers_are_predicted_from_a_table(tmp_path: Path, service: Service) -> None:
    data = table(tmp_path, numbers=True)
    found = register(tmp_path, LINE, data, "--label", "kind", "--features", "f*")
    assert found.exit_code == 0, found.output
    assert "R² on 44 held-out rows: 0." in found.output
    assert service.rows["labels"].dtype == np.float64


def test_an_npz(tmp_path: Path, service: Service) -> None:
    features, labels = load_iris(return_X_y=True)
    path = tmp_path / "rows.npz"
    np.savez(path, features=features, labels=labels, clients=np.arange(len(labels)) % 10)
    found = register(tmp_path, TREES, path)
    assert found.exit_code == 0, found.output
    assert "held-out rows only measure the model; they are not sent" in found.output
    refused = register(tmp_path, LINE, path)
    assert "needs a table" in said(refused)


def said(result: Result) -> str:
    assert result.exit_code != 0, result.output
    return f"{result.output} {getattr(result.exception, 'detail', '')}"


@pytest.mark.parametrize(
    ("recipe", "words", "problem"),
    [
        ("no JSON", (), "not a readable JSON file"),
        ('{"seed": 1, "seed": 2}', (), "not a readable JSON file"),
        ([], (), "must be an object"),
        ({"estimator": "os.system"}, (), "estimator"),
        ({**TREES, "parameters": {"trees": 3}}, (), "trees of"),
        ({**TREES, "sed": 3}, (), "sed"),
        (TREES, ("--penalty", "2"), "--penalty"),
        (TREES, ("--extractor", "identity"), "--extractor"),
    ],
)
def test_nothing_is_sent_of_what_is_wrong(
    tmp_path: Path, service: Service, recipe: Any, words: tuple[str, ...], problem: str
) -> None:
    found = register(tmp_path, recipe, table(tmp_path), "--label", "kind", *words)
    assert problem in said(found)
    assert service.rows == {}
