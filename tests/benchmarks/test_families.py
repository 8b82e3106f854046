"""The benchmark of the families runs, and writes the figures that it names."""

import json
from dataclasses import asdict
from pathlib import Path

from click.testing import CliRunner

from benchmarks.families import FAMILIES, Figures, main, page


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


def test_a_page_has_the_figures_of_its_run() -> None:
    figures = asdict(Figures(569, 1.25, 40.0, 12.5, 0.9649, 0.9631))
    run = {"recipe": {"breast_cancer": figures}, "forest": {"digits": figures}}
    found = page({"processor": "x86_64", "quick": True, "families": run})
    assert "| recipe | 569 | 0.9649 | 0.9631 | 1.25 | 40.0 | 12.50 |" in found
    assert found.index("## breast_cancer") < found.index("| recipe")
    assert found.index("## digits") < found.index("| forest")
    assert "A quick run" in found
