"""`lethe model register forest`: edges, public rows, and accuracy on held-out rows."""

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

from app.schemas.families.forests import NewForest
from app.uploads.rows import parse_table
from lethe.estimators.forest.bins import DEFAULT_EDGES
from lethe.estimators.forest.published import PublishedForest
from models import Model
from tests.uploads import parsed
from tests.workers.cli.models.registering import FittingService
from workers.cli.models import command as model
from workers.families.forest.family import ForestFamily
from workers.families.recipe.rows import TableBlock

SMALL = {"trees": 10, "depth": 6, "group": 2}


class Service(FittingService):
    """Accepts a registration as the API does, and fits it here."""

    def fitted(self, manifest: dict[str, Any], data: bytes, rows: dict[str, Any]) -> bytes:
        wanted = NewForest.model_validate(manifest)
        columns, classes = len(wanted.edges), len(wanted.classes)
        parse = partial(
            parse_table,
            columns=columns,
            classes=classes,
            max_bytes=1 << 24,
            marks_bins=wanted.bins == "held-out",
        )
        parsed(data, parse)
        row = Model(ref="m", tombstone_key=b"", **wanted.pinned())
        weights = 1.0 - rows["bins"] if "bins" in rows else None
        block = TableBlock(rows["records"].tolist(), rows["features"], rows["labels"], weights)
        return ForestFamily().fitted(row, [block]).published().to_bytes()


def register(folder: Path, options: dict[str, Any], *words: object) -> Result:
    file = folder / "forest.json"
    file.write_text(json.dumps(options))
    arguments = ["register", "forest", file, "--url", "http://x", "--ref", "m", *words]
    return CliRunner().invoke(model.model, [str(word) for word in arguments])


def table(folder: Path, *, numbers: bool = False, part: slice = slice(None)) -> Path:
    features, labels = (load_diabetes if numbers else load_iris)(return_X_y=True)
    features, labels = features[part, :4], labels[part]
    columns = {f"f{number}": features[:, number] for number in range(4)}
    names = labels if numbers else np.array(["setosa", "versicolor", "virginica"])[labels]
    path = folder / f"rows-{part.step}.parquet"
    pq.write_table(pa.table({**columns, "kind": names}), path)
    return path


COLUMNS = ("--label", "kind", "--features", "f*")


def share(found: Result) -> float:
    return float(found.output.rpartition(": ")[2])


def test_public_rows_are_the_edges_and_are_not_sent(tmp_path: Path, service: Service) -> None:
    public = table(tmp_path, part=slice(None, None, 3))
    found = register(tmp_path, SMALL, table(tmp_path), *COLUMNS, "--public", public)
    assert found.exit_code == 0, found.output
    assert share(found) > 0.8
    assert service.manifest["edges"] != [DEFAULT_EDGES.tolist()] * 4
    values = np.unique(load_iris().data[::3, 0])
    assert min(service.manifest["edges"][0]) >= values[0]
    assert "default edges" not in found.output


def test_public_columns_are_found_by_their_names(tmp_path: Path, service: Service) -> None:
    """Their order in the file is not that of the learned rows."""
    learned = table(tmp_path)
    edges = []
    for names in ("abcd", "dcba"):
        public = tmp_path / f"{names}.parquet"
        values = {name: load_iris().data[:, "abcd".index(name)] for name in names}
        pq.write_table(pa.table({**values, "kind": load_iris().target}), public)
        words = ("--label", "kind", "--features", "[abcd]", "--public", public)
        found = register(tmp_path, SMALL, renamed(learned, tmp_path), *words)
        assert found.exit_code == 0, (found.output, found.exception)
        edges.append(service.manifest["edges"])
    assert edges[0] == edges[1]
    assert service.manifest["features"] == ["a", "b", "c", "d"]
    pq.write_table(
        pa.table({**values, "kind": load_iris().target}).rename_columns(
            ["a", "b", "c", "e", "kind"]
        ),
        public,
    )
    file, options = renamed(learned, tmp_path), ("--label", "kind", "--public", public)
    refused = register(tmp_path, SMALL, file, *options)
    assert "has other features than DATA" in str(refused.exception)


def renamed(learned: Path, folder: Path) -> Path:
    path = folder / "renamed.parquet"
    features = load_iris().data
    columns = {name: features[:, place] for place, name in enumerate("abcd")}
    pq.write_table(pa.table({**columns, "kind": load_iris().target}), path)
    return path


def test_held_out_rows_are_records_that_make_the_edges(
    tmp_path: Path, service: Service
) -> None:
    words = ("--bins", "held-out", "--holdout", "0.2", "--send-holdout")
    found = register(tmp_path, SMALL, table(tmp_path), *COLUMNS, *words)
    assert found.exit_code == 0, found.output
    assert "registered 150 records" in found.output
    assert "30 of the records are held-out rows, whose quantiles are the bin" in found.output
    assert "default edges" not in found.output
    assert share(found) > 0.8
    marked = service.rows["features"][service.rows["bins"]]
    values = np.unique(marked[:, 0])
    edges = PublishedForest.from_bytes(service.file).config.bins.edges[0]
    assert np.array_equal(edges, values[:-1] / 2 + values[1:] / 2)
    held_out = set(service.rows["held_out_records"].tolist())
    assert held_out == set(service.rows["records"][service.rows["bins"]].tolist())


def test_edges_are_declared_or_the_default(tmp_path: Path, service: Service) -> None:
    found = register(tmp_path, SMALL, table(tmp_path), *COLUMNS)
    assert found.exit_code == 0, found.output
    assert "default edges" in found.output
    assert service.manifest["edges"] == [DEFAULT_EDGES.tolist()] * 4
    edges = [[1.0, 2.0]] * 4
    found = register(tmp_path, {**SMALL, "edges": edges}, table(tmp_path), *COLUMNS)
    assert found.exit_code == 0, found.output
    assert service.manifest["edges"] == edges


def test_numbers_are_predicted(tmp_path: Path, service: Service) -> None:
    data = table(tmp_path, numbers=True)
    options = {
        **SMALL,
        "numbers": True,
        "step": 0.5,
        "trees": 30,
        "edges": [[-0.02, 0.0, 0.02]] * 4,
    }
    found = register(tmp_path, options, data, *COLUMNS)
    assert found.exit_code == 0, found.output
    assert "R² on" in found.output
    assert share(found) > 0.1


def test_numbers_and_holes_of_an_npz_make_the_forest_of_the_same_table(
    tmp_path: Path, service: Service
) -> None:
    features, labels = load_diabetes(return_X_y=True)
    features = features[:, :2].copy()
    features[::5, 1] = np.nan
    pq.write_table(
        pa.table({"f_0": features[:, 0], "f_1": features[:, 1], "kind": labels}),
        tmp_path / "rows.parquet",
    )
    np.savez(tmp_path / "rows.npz", f=features, kind=labels)
    options = {**SMALL, "numbers": True, "step": 0.5, "missing": True}
    found = []
    for path in (tmp_path / "rows.parquet", tmp_path / "rows.npz"):
        words = ("--public", path)  # an .npz, too
        result = register(tmp_path, options, path, *COLUMNS, *words)
        assert result.exit_code == 0, (result.output, result.exception)
        output = result.output.replace(path.name, "rows")
        found.append((output, service.manifest, service.file))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "words", "problem"),
    [
        ({"tress": 3}, (), "tress"),
        ({"edges": [[1.0]]}, (), "4"),
        ({}, ("--bins", "held-out", "--holdout", "none"), "no row is held out"),
    ],
)
def test_what_is_wrong_is_named_and_not_sent(
    tmp_path: Path,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    words: tuple[str, ...],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = register(tmp_path, {**SMALL, **options}, table(tmp_path), *COLUMNS, *words)
    assert found.exit_code != 0
    assert problem in f"{found.output} {found.exception}"
    assert not service.manifest
