"""The benchmark of the forest runs, and says what it measured."""

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from benchmarks.forest import main, sample


def test_a_quick_run_prints_and_writes_its_figures(tmp_path: Path) -> None:
    data, file = tmp_path / "texts.npz", tmp_path / "figures.json"
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [60, 60, 3])
    np.savez(
        data, features=(rng.normal(size=(123, 6)) + labels[:, None]).astype("f2"), labels=labels
    )
    done = CliRunner().invoke(main, ["--quick", "--data", str(data), "--json", str(file)])
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    assert set(report["accuracy"]) == {"breast_cancer", "digits", "texts"}
    for found in report["accuracy"].values():
        assert abs(found["difference"]) < 0.1
    assert report["accuracy"]["texts"]["rows"] == 120, (
        "a class of three cannot be divided in five"
    )
    (cost,) = report["cost"]
    assert 0 < cost["rebuilt_rows_mean"] < cost["rows"] * cost["trees"]
    assert "times faster than the refit" in done.output
    assert len(sample(data, 50)[1]) <= 50
