"""PUF's figures 4 to 6: what a point is, and that the committed page is what was measured."""

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from benchmarks.puf_figures import report
from benchmarks.puf_figures.__main__ import main
from benchmarks.puf_figures.curves import (
    ORIGINAL,
    RETRAIN,
    Configuration,
    Curve,
    baselines,
    configurations,
    measure,
    puf,
)
from benchmarks.puf_figures.points import mean_curve, points, stop
from benchmarks.unlearning.report import parts
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.sources import load
from benchmarks.unlearning.task import make_task

torch.set_num_threads(1)
DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"


def curve(label: str, test: list[float], forget: list[float], seed: int = 0) -> Curve:
    return Curve("digits", seed, label, tuple(test), tuple(forget))


def test_recovery_ends_with_the_first_round_that_reaches_the_retrained_model() -> None:
    retrained = curve(RETRAIN, [0.8], [0.3])
    slow = curve("slow", [0.9, 0.5, 0.7, 0.8, 0.95], [0.9, 0.2, 0.25, 0.35, 0.6])
    # The step alone is no recovery, however good its model is.
    assert stop(slow, retrained) == (3, True)
    assert stop(curve("never", [0.1, 0.2], [0, 0]), retrained) == (1, False)


def test_a_point_is_a_mean_over_seeds_and_counts_who_never_got_there() -> None:
    curves = [
        *(curve(label, [0.8], [0.3], seed) for label in (ORIGINAL, RETRAIN) for seed in (0, 1)),
        curve("a", [0.1, 0.9], [0.1, 0.4], 0),
        curve("a", [0.1, 0.2], [0.1, 0.2], 1),
        replace(curve("b", [], [], 0), refused="it diverged"),
        curve("b", [0.2, 0.8], [0.2, 0.3], 1),
    ]
    first, second = points(curves, "digits")
    assert (first.label, first.reached, first.refused, first.seeds) == ("a", 1, 0, 2)
    assert first.rounds.mean == 1
    assert first.gap.mean == pytest.approx((0.1 + 0.1) / 2)
    assert first.test.mean == pytest.approx((0.1 - 0.6) / 2)
    assert (second.reached, second.refused, second.gap.mean) == (1, 1, 0)
    assert isnan(second.gap.half)
    assert mean_curve(curves, "digits", "a", "forget") == pytest.approx([0.1, 0.3])
    assert mean_curve(curves, "digits", "b", "forget") == [0.2, 0.3]


def test_the_sweep_is_that_of_the_paper() -> None:
    digits, masks = (
        [part.label for part in configurations(segmentation)] for segmentation in (False, True)
    )
    assert {"natural", "not", "pga", "puf-special η_u=2", "puf-regular η_u=20"} <= set(masks)
    assert {"fed-au", "mode", "puf-special η_u=1 E_u=5"} <= set(digits) - set(masks)
    [special] = [part for part in configurations(False) if part.label == "puf-special η_u=2"]
    assert special.settings["guard"] is None


def test_each_curve_begins_with_the_step_and_a_step_of_nothing_is_the_original() -> None:
    tiny = replace(SETTINGS["digits"], rows=60, clients=3, rounds=1, epochs=1.0)
    task = make_task(tiny, load("digits", ()), 0)
    told: list[str] = []
    wanted = [
        *baselines(),
        puf("special", 1e-9),
        puf("special", 1e9),
        Configuration(
            "cannot", "hf-kcu", "hf-kcu", {"variant": "as-printed", "form": "newton"}
        ),
    ]
    found = {one.label: one for one in measure(task, wanted, 2, told.append)}
    assert told == [ORIGINAL, RETRAIN, *(part.label for part in wanted)]
    first = found[ORIGINAL]
    nothing = found["puf-special η_u=1e-09"]
    assert (nothing.test[0], nothing.forget[0]) == (first.test[0], first.forget[0])
    assert [len(found[name].test) for name in ("natural", "not", "pga")] == [3, 3, 3]
    assert found["natural"].forget[1:] == nothing.forget[1:]
    destroyed = found["puf-special η_u=1e+09"]
    assert destroyed.refused or destroyed.test[0] < first.test[0] + 0.05
    assert found["cannot"].refused


def test_a_page_is_drawn_of_what_is_merged(tmp_path: Path) -> None:
    levels = [
        curve(label, [0.8], [0.3], seed) for label in (ORIGINAL, RETRAIN) for seed in (0, 1)
    ]
    shown = [
        curve(part.label, [0.1, 0.9], [0.1, 0.4 + seed / 10], seed)
        for part in configurations(False)
        for seed in (0, 1)
    ]
    other = tmp_path / "other.json"
    other.write_text(report.format_curves([*levels, *shown]))
    assert report.parse_curves(other.read_text()) == sorted(
        [*levels, *shown], key=lambda one: one.seed
    )
    out = tmp_path / "out"
    asked = ["--report", "--merge", str(other), "--out", str(out)]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    text = (out / report.PAGE).read_text()
    assert "2 seeds. Original model: test 80.0, forget 30.0; retrained model" in text
    assert "| `puf-special η_u=2` | 1 ± 0 | 2 of 2 |" in text
    assert (out / "puf-recovery-digits.png").stat().st_size > 10_000
    assert "masks" not in text


def test_the_page_is_what_its_results_render() -> None:
    curves = report.parse_curves((DOCS / report.FILE).read_text())
    _, between, _ = parts((DOCS / report.PAGE).read_text(), report.PAGE)
    assert between == report.generated(curves), (
        "renew the page: python -m benchmarks.puf_figures --report --out docs/benchmarks"
    )
