"""The benchmark of the console runs, and times every page that it names."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import console


def test_a_run_times_each_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "QUICK_CASES", 120)
    file = tmp_path / "figures.json"
    done = CliRunner().invoke(console.main, ["--quick", "--extended", "--json", str(file)])
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    assert (report["cases"], report["extended"]) == (120, True)
    assert {"queue", "queue, answered", "a case", "a certificate", "health"} < set(
        report["pages"]
    )
    for found in report["pages"].values():
        assert found["cpu_s"] > 0
    assert "queue, JSON of all" in done.output
