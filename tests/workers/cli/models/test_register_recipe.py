"""`lethe model register recipe`: tables and .npz, measured on held-out rows."""

import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier

from app.problems import UploadError
from app.schemas.families.recipes import NewRecipe
from app.uploads.rows import parse_rows
from lethe.identity import COLUMN
from tests.small import pack
from tests.uploads import parsed
from tests.workers.cli.models.registering import FittingService, said
from workers.cli.models import command as model
from workers.training.recipes import files
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


class Service(FittingService):
    """Accepts a registration as the API does, and fits it here."""

    def fitted(self, manifest: dict[str, Any], data: bytes, rows: dict[str, Any]) -> bytes:
        wanted = NewRecipe.model_validate(manifest)
        config = wanted.pinned()["config"]
        parsed(
            data,
            partial(parse_rows, config=config, classes=wanted.classes, max_bytes=1 << 24),
        )
        recipe = Recipe.parse(wanted.recipe.spelled())
        return fit(recipe, FitRows(rows["features"], rows["labels"], rows.get("weights")), 1)


def register(folder: Path, recipe: Any, *words: object) -> Result:
    file = folder / "recipe.json"
    file.write_text(recipe if isinstance(recipe, str) else json.dumps(recipe))
    arguments = ["register", "recipe", file, "--url", "http://x", "--ref", "m", *words]
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


def test_the_file_of_the_service_is_read_in_a_process_with_limits(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A booster's library crashes, loops and takes gigabytes on a malformed file."""

    def read_here(data: bytes) -> None:
        raise AssertionError("read without limits")

    monkeypatch.setattr(files, "decode", read_here)
    words = (table(tmp_path), "--label", "kind", "--features", "f*")
    found = register(tmp_path, TREES, *words)
    assert found.exit_code == 0, found.output
    assert "accuracy on 15 held-out rows: " in found.output
    service.fitted = lambda *_: b"no model"  # type: ignore[method-assign]
    assert "not a canonical safetensors file" in said(register(tmp_path, TREES, *words))


def test_numbers_are_predicted_from_a_table(tmp_path: Path, service: Service) -> None:
    data = table(tmp_path, numbers=True)
    found = register(tmp_path, LINE, data, "--label", "kind", "--features", "f*")
    assert found.exit_code == 0, found.output
    assert "R² on 44 held-out rows: 0." in found.output
    assert service.rows["labels"].dtype == np.float64


def test_what_was_taken_and_what_was_left_out_is_said(tmp_path: Path, service: Service) -> None:
    data = weighted(tmp_path, kind=[None, *(("no", "yes")[row % 2] for row in range(1, 60))])
    words = ("--label", "kind", "--features", "f_n", "--holdout", "0.2")
    found = register(tmp_path, TREES, data, *words)
    assert found.exit_code == 0, found.output
    assert found.output.splitlines()[:6] == [
        "60 rows, 1 feature: f_n",
        "label kind: 2 classes, no, yes",
        'client: "all" for every row; --client names a column',
        "not used: f_region, w",
        "left out: 1 row without a label",
        "held out: 11 rows (0.2 of them, drawn at random)",
    ]


def test_a_query_is_read_as_a_table_is(tmp_path: Path, service: Service) -> None:
    """Numbers to predict, weights, categories, missing values: the upload as from a file."""
    data = weighted(tmp_path, n=np.arange(60) / 8)
    rows = pq.read_table(data).to_pydict()
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute(f"CREATE TABLE t ({', '.join(rows)})")
        places = ", ".join("?" for _ in rows)
        database.executemany(
            f"INSERT INTO t VALUES ({places})", zip(*rows.values(), strict=True)
        )
    database.close()
    recipe = {
        "estimator": "sklearn.ensemble.HistGradientBoostingRegressor",
        "parameters": {"max_iter": 5},
        "categories": {"f_region": ["south", "north", "east"]},
    }
    words = ("--label", "n", "--features", "f_*", "--sample-weight", "w", "--holdout", "none")
    from_file = register(tmp_path, recipe, data, *words)
    assert from_file.exit_code == 0, from_file.output
    assert "label n: numbers" in from_file.output
    known, service.rows = service.rows, {}
    query = ("--query", "SELECT * FROM t ORDER BY rowid")
    found = register(
        tmp_path, recipe, "--sql", f"sqlite:///{tmp_path / 'rows.db'}", *query, *words
    )
    assert found.exit_code == 0, found.output
    assert found.output == from_file.output
    assert np.isnan(service.rows["features"]).any()
    assert service.rows.keys() == known.keys()
    assert all(
        np.array_equal(service.rows[one], known[one], equal_nan=known[one].dtype.kind == "f")
        for one in known
    )


def test_an_npz(tmp_path: Path, service: Service) -> None:
    features, labels = load_iris(return_X_y=True)
    path = tmp_path / "rows.npz"
    np.savez(path, features=features, labels=labels, clients=np.arange(len(labels)) % 10)
    found = register(tmp_path, TREES, path)
    assert found.exit_code == 0, found.output
    assert "held-out rows only measure the model; they are not sent" in found.output
    refused = register(tmp_path, LINE, path)
    assert "name the arrays of an .npz as columns: --label" in said(refused)


def as_npz(table: Path) -> Path:
    """Save the columns of a Parquet file as arrays; None of a text is empty."""
    columns = pq.read_table(table).to_pydict()
    texts = {name for name in columns if any(isinstance(one, str) for one in columns[name])}
    path = table.with_suffix(".npz")
    arrays = {
        name: np.array([one or "" for one in column] if name in texts else column)
        for name, column in columns.items()
    }
    np.savez(path, allow_pickle=False, **arrays)
    return path


def test_an_npz_has_numbers_to_predict_weights_categories_and_holes(
    tmp_path: Path, service: Service
) -> None:
    """The same manifest, rows and model as of the same columns in Parquet, byte for byte."""
    numbers = np.random.default_rng(1).normal(size=60)
    numbers[::7] = np.nan
    data = weighted(tmp_path, n=np.arange(60) / 8, f_n=numbers)
    recipe = {
        "estimator": "sklearn.ensemble.HistGradientBoostingRegressor",
        "parameters": {"max_iter": 5},
        "categories": {"f_region": ["south", "north", "east"]},
    }
    words = ("--label", "n", "--features", "f_*", "--sample-weight", "w", "--send-holdout")
    found = []
    for path in (data, as_npz(data)):
        result = register(tmp_path, recipe, path, *words)
        assert result.exit_code == 0, (result.output, result.exception)
        rows = {name: array.tobytes() for name, array in service.rows.items()}
        found.append((result.output, service.manifest, rows, service.file))
    assert np.isnan(service.rows["features"]).any(axis=0).all()
    assert "weights" in rows
    assert found[0] == found[1]
    for features, problem in (("w", "w: is the weight"), ("kind", "kind: text (string)")):
        refusals = [
            said(register(tmp_path, LINE, path, *words[:3], features, *words[4:]))
            for path in (data, data.with_suffix(".npz"))
        ]
        assert refusals[0] == refusals[1]
        assert problem in refusals[0]


def weighted(folder: Path, **changes: Any) -> Path:
    """Return rows of two classes with a text, a number that may be missing, and weights."""
    count = 60
    rng = np.random.default_rng(0)
    found = {
        "kind": [("no", "yes")[row % 2] for row in range(count)],
        "f_region": [("north", None, "south", "east")[row % 4] for row in range(count)],
        "f_n": rng.normal(size=count) + np.arange(count) % 2,
        "w": rng.uniform(0, 3, size=count),
        **changes,
    }
    path = folder / "weighted.parquet"
    pq.write_table(pa.table(found), path)
    return path


def test_a_column_with_holes_is_named_before_rows_are_sent(
    tmp_path: Path, service: Service
) -> None:
    words = ("--label", "kind", "--features", "f*")
    bayes = {"estimator": "sklearn.naive_bayes.GaussianNB"}
    for more in ((), ("--shards", 3)):
        refused = register(tmp_path, bayes, table(tmp_path), *words, *more)
        assert "f1: 17 of 150 values are missing, and sklearn.naive_bayes.GaussianNB" in said(
            refused
        )
        assert service.manifest == {}
    imputed = {"steps": [{"estimator": "sklearn.impute.SimpleImputer"}, bayes]}
    found = register(tmp_path, imputed, table(tmp_path), *words)
    assert found.exit_code == 0, found.output


def test_categories_and_weights_reach_the_fit(tmp_path: Path, service: Service) -> None:
    """The oracle is the library, fitted on numbers that are written out here."""
    data = weighted(tmp_path)
    recipe = {**TREES, "categories": {"f_region": ["south", "north", "east"]}}
    words = ("--label", "kind", "--features", "f_*", "--holdout", "none")
    found = register(tmp_path, recipe, data, *words, "--sample-weight", "w")
    assert found.exit_code == 0, (found.output, found.exception)
    assert service.manifest["features"] == ["f_region", "f_n"]
    assert service.manifest["categories"] == {"f_region": ["south", "north", "east"]}
    assert service.manifest["weighted"] is True
    columns = pq.read_table(data).to_pydict()
    codes = [
        {"north": 1.0, "south": 0.0, "east": 2.0}.get(one, np.nan)
        for one in columns["f_region"]
    ]
    features = np.array([codes, columns["f_n"]]).T
    np.testing.assert_array_equal(service.rows["features"], features)
    labels = np.array([one == "yes" for one in columns["kind"]]).astype(int)
    theirs = HistGradientBoostingClassifier(max_iter=10, random_state=0)
    wanted = theirs.fit(features, labels, sample_weight=columns["w"]).predict_proba(features)
    np.testing.assert_array_equal(files.decode(service.file).probabilities(features), wanted)
    plain = fit(
        Recipe.parse(NewRecipe.model_validate(service.manifest).recipe.spelled()),
        FitRows(service.rows["features"], service.rows["labels"]),
        1,
    )
    assert plain != service.file  # weights matter
    for place, value in ((0, 3.0), (1, -1.0), (2, 0.5)):
        wrong = {**service.rows, "features": features.copy()}
        wrong["features"][place, 0] = value
        with pytest.raises(UploadError, match="column 0, counted from 0, has numbers of categ"):
            service.register_model(service.manifest, pack(wrong))
    for value in (np.nan, np.inf, -1.0):
        wrong = {**service.rows, "weights": service.rows["weights"].copy()}
        wrong["weights"][7] = value
        with pytest.raises(UploadError, match="weights must be finite"):
            service.register_model(service.manifest, pack(wrong))


@pytest.mark.parametrize(
    ("recipe", "words", "problem"),
    [
        (
            {"categories": {"f_region": ["north"]}},
            (),
            "f_region: 30 of 60 values are not among",
        ),
        ({"categories": {"region": ["north"]}}, (), "region is not among the features"),
        ({"categories": {"f_region": []}}, (), "f_region"),
        ({"categories": {"f_region": ["north", "north", "south", "east"]}}, (), "twice"),
        ({}, (), "not a number"),
        (
            {
                "estimator": "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
                "parameters": {},
            },
            ("--sample-weight", "w", "--features", "f_n"),
            "takes no sample weights",
        ),
        (
            {"categories": {"f_region": ["north", "south", "east"]}},
            ("--sample-weight", "f_n"),
            "f_n: ",
        ),
    ],
)
def test_what_is_wrong_with_categories_and_weights(
    tmp_path: Path, service: Service, recipe: Any, words: tuple[str, ...], problem: str
) -> None:
    features = () if "--features" in words else ("--features", "f_*")
    given = ("--label", "kind", "--holdout", "none", *features, *words)
    found = register(tmp_path, {**TREES, **recipe}, weighted(tmp_path), *given)
    assert problem in said(found) + str(found.exception)
    assert "south" not in said(found)
    assert service.file == b""


@pytest.mark.parametrize(
    ("recipe", "words", "problem"),
    [
        ("no JSON", (), "not a readable JSON file"),
        ('{"seed": 1, "seed": 2}', (), "not a readable JSON file"),
        ([], (), "must be one JSON object"),
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
