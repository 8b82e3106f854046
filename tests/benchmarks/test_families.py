"""The benchmark of the families runs, and writes the figures that it names."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.families import FAMILIES, main


def test_a_quick_run_writes_the_figures_of_families(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    families = (
        "ridge-classifier",
        "gaussian-nb",
        "recipe",
        "vectors-ivf",
    )  # a forest takes a minute to compile
    options = [word for name in families for word in ("--family", name)]
    done = CliRunner().invoke(main, ["--quick", *options, "--json", str(file)])
    assert done.exit_code == 0, done.output
    found = json.loads(file.read_text())["families"]
    assert found.keys() == set(families) < FAMILIES.keys()
    for figures in found.values():
        own = figures["breast_cancer"]
        assert abs(own["accuracy"] - own["accuracy_reference"]) < 0.05
        assert own["fit_seconds_ratio"] > 0
        assert 0 < own["verified_delete_speedup"] < own["delete_speedup"]
