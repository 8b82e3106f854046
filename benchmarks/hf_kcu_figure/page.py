"""The runs as JSON, the picture of each setting, and the generated part of the page."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.hf_kcu_figure.measure import SHOWN, TOLERANCE, Run, guaranteed, needed
from benchmarks.unlearning.markdown import table
from benchmarks.unlearning.report import BEGIN, END, parts
from benchmarks.unlearning.settings import SETTINGS

FILE, PAGE = "hf-kcu-figure.json", "hf-kcu-figure.md"
SHOWN_SETTINGS = ("digits",)  # on images a solve at κ 1e5 takes an hour and more
COLOURS = {1: "#b03030", 2: "#1f3f6f"}
DOTS = 110  # an inch
SIZE = (8.8, 3.6)  # inches


def format_runs(runs: Sequence[Run]) -> str:
    """Return the JSON text of all runs, sorted."""
    ordered = sorted(runs, key=lambda one: (one.setting, one.seed, one.client))
    lines = ",\n".join(json.dumps(asdict(run), sort_keys=True) for run in ordered)
    return f'{{"runs": [\n{lines}\n]}}\n'


def parse_runs(text: str) -> list[Run]:
    """Return the runs of a JSON text. Raises ValueError, KeyError, TypeError for others."""
    return [
        Run(**{**entry, "residuals": tuple(entry["residuals"])})
        for entry in json.loads(text)["runs"]
    ]


def write_page(runs: Sequence[Run], out: Path) -> list[str]:
    """Draw the pictures and replace what stands between the markers; return the files."""
    pictures = []
    for setting in _settings(runs):
        name = f"hf-kcu-figure-{setting}.png"
        draw([run for run in runs if run.setting == setting], out / name)
        pictures.append(name)
    page = out / PAGE
    text = page.read_text() if page.exists() else f"# HF-KCU's figure 2\n\n{BEGIN}\n{END}\n"
    before, _, after = parts(text, page.name)
    page.write_text(f"{before}{BEGIN}{generated(runs)}{END}{after}")
    return [PAGE, *pictures]


def generated(runs: Sequence[Run]) -> str:
    """Return what stands between the markers."""
    return (
        "".join(
            f"\n\n## {setting}\n\n{SETTINGS[setting].about}; seed {seed}.\n\n"
            f"![Residual by iteration, and iterations by condition number]"
            f"(hf-kcu-figure-{setting}.png)\n\n"
            f"{_residuals(mine)}\n{_iterations(mine)}"
            for setting in _settings(runs)
            for seed in sorted({run.seed for run in runs if run.setting == setting})
            for mine in [[run for run in runs if (run.setting, run.seed) == (setting, seed)]]
        )
        + "\n"
    )


def draw(runs: Sequence[Run], file: Path) -> None:
    """Write the figure of one setting: panels (a) and (b) of the paper's figure 2."""
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=SIZE, dpi=DOTS, layout="constrained")
        left, right = figure.subplots(1, 2)
    for run in (one for one in runs if one.shown):
        said = f"client {run.client}"
        left.semilogy(run.residuals, color=COLOURS[run.client], label=said)
        bound = [guaranteed(run.condition, t) for t in range(SHOWN + 1)]
        left.semilogy(bound, color=COLOURS[run.client], linestyle=":", label=f"{said}, bound")
    left.axhline(TOLERANCE, color="#888888", linewidth=0.8)
    left.set_ylim(top=10)
    left.set_xlabel("iteration")
    left.set_ylabel("‖residual‖ / ‖b‖, damping 0.01")
    for client, colour in COLOURS.items():
        for preconditioned, style, kind in (
            (False, "-o", ""),
            (True, "--s", ", preconditioned"),
        ):
            found = _sweep(runs, client, preconditioned)
            x, y = [run.condition for run in found], [_count(run) for run in found]
            right.loglog(
                x, y, style, color=colour, markersize=4, label=f"client {client}{kind}"
            )
    conditions = sorted({run.condition for run in runs if not run.shown})
    right.loglog(
        conditions, [needed(one) for one in conditions], ":", color="#444444", label="bound"
    )
    right.set_xlabel("condition number κ of A + δI")
    right.set_ylabel("iterations until the residual is 1e-4")
    for axes in (left, right):
        axes.grid(alpha=0.2)
        axes.legend(frameon=False, fontsize=7)
    # Without the version in it, the same numbers give the same file.
    figure.savefig(file, dpi=DOTS, metadata={"Software": ""})


def _settings(runs: Sequence[Run]) -> list[str]:
    known = {run.setting for run in runs}
    return [name for name in SHOWN_SETTINGS if name in known]


def _sweep(runs: Sequence[Run], client: int, preconditioned: bool) -> list[Run]:
    found = [
        run
        for run in runs
        if (run.client, run.preconditioned, run.shown) == (client, preconditioned, False)
    ]
    return sorted(found, key=lambda run: run.condition)


def _count(run: Run) -> int:
    return len(run.residuals) - 1


def _residuals(runs: Sequence[Run]) -> str:
    """Return the table of panel (a)."""
    chosen = [t for t in (3, 10, 20, 50) if t <= SHOWN]
    head = [
        "damping 0.01",
        "κ",
        *(f"residual after {t}" for t in chosen),
        f"bound after {SHOWN}",
    ]
    body = [
        [
            f"client {run.client}",
            f"{run.condition:,.0f}",
            *(f"{run.residuals[t]:.2g}" for t in chosen),
            f"{guaranteed(run.condition, SHOWN):.2g}",
        ]
        for run in runs
        if run.shown
    ]
    return table(head, body)


def _iterations(runs: Sequence[Run]) -> str:
    """Return the table of panel (b)."""
    columns = [(client, way) for client in COLOURS for way in (False, True)]
    head = [
        "κ",
        *(f"client {client}{', preconditioned' * way}" for client, way in columns),
        "bound",
    ]
    sweeps = [_sweep(runs, *column) for column in columns]
    body = [
        [
            f"{of[0].condition:,.0f}",
            *(f"{_count(run):,}{' and more' * (run.outcome != 'converged')}" for run in of),
            f"{needed(of[0].condition):,}",
        ]
        for of in zip(*sweeps, strict=True)
    ]
    return table(head, body)
