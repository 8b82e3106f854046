"""HF-KCU's figure 2: what a run is, and that the committed page is what was measured."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks.hf_kcu_figure import page
from benchmarks.hf_kcu_figure.__main__ import main
from benchmarks.hf_kcu_figure.measure import (
    DAMPING,
    SHOWN,
    TOLERANCE,
    Run,
    guaranteed,
    measure,
    needed,
)
from benchmarks.unlearning.report import parts
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.sources import load
from benchmarks.unlearning.task import make_task
from workers.methods.network.hf_kcu.conjugate_gradients import solve

torch.set_num_threads(1)
DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"


@pytest.mark.parametrize("condition", [10.0, 1e3, 1e5])
def test_no_residual_is_above_the_bound(condition: float) -> None:
    rng = np.random.default_rng(7)
    spectrum = torch.from_numpy(np.geomspace(1.0, condition, 300))
    right = torch.from_numpy(rng.standard_normal(300))
    report = solve(lambda v: spectrum * v, right, iterations=5000, tolerance=TOLERANCE).report
    for iteration, residual in enumerate(report.residuals):
        assert residual <= guaranteed(condition, iteration)
    assert report.outcome == "converged"
    assert report.iterations <= needed(condition)
    last = needed(condition)
    assert guaranteed(condition, last) <= TOLERANCE < guaranteed(condition, last - 1)


def test_a_seed_has_runs_of_two_clients_at_the_condition_numbers() -> None:
    tiny = replace(SETTINGS["digits"], rows=60, clients=3, rounds=1, epochs=1.0)
    told: list[str] = []
    runs = list(measure(make_task(tiny, load("digits", ()), 0), (10.0,), told.append))
    assert len(told) == 1 + len(runs)
    shown = [run for run in runs if run.shown]
    assert [(run.client, run.damping) for run in shown] == [(1, DAMPING), (2, DAMPING)]
    assert all(len(run.residuals) == SHOWN + 1 for run in shown)
    swept = [run for run in runs if not run.shown]
    assert [round(run.condition) for run in swept] == [10, 10] * 2
    for run in swept:
        assert run.outcome == "converged"
        assert run.residuals[-1] <= TOLERANCE < run.residuals[-2]
        if not run.preconditioned:
            assert len(run.residuals) - 1 <= needed(run.condition)


def test_a_page_is_drawn_of_runs(tmp_path: Path) -> None:
    def run(condition: float, **more: object) -> Run:
        known = Run("digits", 0, 1, False, False, 0.1, condition, "converged", (1.0, 0.5, 5e-5))
        return replace(known, **more)  # type: ignore[arg-type]

    falling = tuple(0.5**t for t in range(SHOWN + 1))
    runs = [
        each
        for client in (1, 2)
        for each in (
            run(900.0, client=client, shown=True, residuals=falling, outcome="iterations"),
            run(10.0, client=client),
            run(10.0, client=client, preconditioned=True, residuals=(1.0, 5e-5)),
            run(100.0, client=client, outcome="iterations", residuals=(1.0, 0.2, 0.1, 0.05)),
            run(100.0, client=client, preconditioned=True),
        )
    ]
    (tmp_path / page.FILE).write_text(page.format_runs(runs))
    result = CliRunner().invoke(main, ["--report", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    text = (tmp_path / page.PAGE).read_text()
    assert "| client 1 | 900 | 0.12 | 0.00098 |" in text
    assert "| 10 | 2 | 1 | 2 | 1 | 17 |" in text
    assert "| 100 | 3 and more | 2 | 3 and more | 2 | 61 |" in text
    assert (tmp_path / "hf-kcu-figure-digits.png").stat().st_size > 10_000
    assert page.parse_runs((tmp_path / page.FILE).read_text()) == runs


def test_the_page_is_what_its_results_render() -> None:
    runs = page.parse_runs((DOCS / page.FILE).read_text())
    _, between, _ = parts((DOCS / page.PAGE).read_text(), page.PAGE)
    assert between == page.generated(runs), (
        "renew the page: python -m benchmarks.hf_kcu_figure --report --out docs/benchmarks"
    )
