"""The benchmark of the families runs, and writes the figures that it names."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_iris

from benchmarks.families.__main__ import main
from benchmarks.families.data import data_sets
from benchmarks.families.measure import FAMILIES, Figures
from benchmarks.families.page import page


def test_a_quick_run_writes_the_figures_of_families(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    families = (
        "ridge-classifier",
        "ridge-regressor",
        "gaussian-nb",
        "recipe",
        "vectors-ivf",
    )  # a forest takes a minute to compile
    options = [word for name in families for word in ("--family", name)]
    done = CliRunner().invoke(main, ["--quick", *options, "--json", str(file)])
    assert done.exit_code == 0, done.output
    found = json.loads(file.read_text())["families"]
    assert found.keys() == set(families) < FAMILIES.keys()
    for name, figures in found.items():
        (own,) = figures.values()
        assert ("diabetes" in figures) == (name == "ridge-regressor")
        assert abs(own["accuracy"] - own["accuracy_reference"]) < 0.05
        assert own["fit_seconds_ratio"] > 0
        assert 0 < own["verified_delete_speedup"] < own["delete_speedup"]


def test_a_page_has_the_figures_of_its_run() -> None:
    figures = asdict(Figures(569, 1.25, 40.0, 12.5, 0.9649, 0.9631))
    run = {"recipe": {"breast_cancer": figures}, "forest": {"digits": figures}}
    found = page({"processor": "x86_64", "quick": True, "families": run})
    assert "| recipe | 569 | 0.9649 | 0.9631 | 1.25 | 40.0 | 12.50 |" in found
    assert found.index("## breast_cancer") < found.index("| recipe")
    assert found.index("## digits") < found.index("| forest")
    assert "A quick run" in found


def test_an_interrupted_run_continues_where_its_file_ends(tmp_path: Path) -> None:
    file, words = tmp_path / "figures.json", ["--quick", "--family", "gaussian-nb"]
    words += ["--json", str(file), "--continue"]
    planted = asdict(Figures(569, 1.0, 2.0, 1.0, 0.5, 0.5))
    head = {"processor": "other", "quick": True}
    past = {**head, "families": {"gaussian-nb": {"breast_cancer": planted}}}
    file.write_text(json.dumps(past))
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 1
    assert "is of another processor" in refused.output
    file.unlink()
    assert CliRunner().invoke(main, words).exit_code == 0
    whole = json.loads(file.read_text())
    assert whole["families"]["gaussian-nb"]["breast_cancer"]["accuracy"] > 0.9
    file.write_text(json.dumps({**whole, "families": past["families"]}))
    again = CliRunner().invoke(main, [*words, "--family", "multinomial-nb"])
    assert again.exit_code == 0, again.output
    assert "gaussian-nb     breast_cancer  measured before" in again.output
    found = json.loads(file.read_text())["families"]
    assert found["gaussian-nb"]["breast_cancer"] == planted
    assert found["multinomial-nb"]["breast_cancer"]["rows"] == 569
    assert "--continue needs --json" in CliRunner().invoke(main, ["--continue"]).output


def test_tables_and_arrays_give_the_same_rows(tmp_path: Path) -> None:
    features, labels = load_iris(return_X_y=True)
    np.savez(tmp_path / "arrays.npz", features=features, labels=labels)
    columns = {f"f{place}": features[:, place] for place in range(4)}
    pq.write_table(pa.table({**columns, "kind": labels}), tmp_path / "columns.parquet")
    lists = pa.table({"vector": features.tolist(), "kind": labels, "note": ["x"] * 150})
    pq.write_table(lists, tmp_path / "lists.parquet")
    theirs = data_sets([tmp_path / "arrays.npz"], quick=False)["arrays"]()
    files = [tmp_path / "columns.parquet"]
    mine = data_sets(files, quick=False, label="kind")["columns"]()
    assert all(np.array_equal(*pair) for pair in zip(mine, theirs, strict=True))
    files = [tmp_path / "lists.parquet"]
    found = data_sets(files, quick=False, label="kind", features=["vector"])["lists"]()
    assert np.array_equal(found[0], theirs[0].astype(np.float32).astype(np.float64))
    assert np.array_equal(found[1], theirs[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "label: no such column"), (("--label", "kind"), "note: text")],
)
def test_a_column_that_is_none_is_named(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"kind": ["a", "b"], "note": ["x", "y"]}), path)
    options = ["--quick", "--family", "gaussian-nb", "--data", str(path), *words]
    found = CliRunner().invoke(main, options)
    assert found.exit_code == 1
    assert said in found.output
