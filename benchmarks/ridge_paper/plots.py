"""The figures, drawn from results: readable in grey, times on logarithmic axes."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.ridge_paper.chunks import Chunks
from benchmarks.ridge_paper.contenders import REFIT
from benchmarks.ridge_paper.continual import ANALYTIC, BASELINES, COURSE, Continual
from benchmarks.ridge_paper.cost import ClaimedCosts
from benchmarks.ridge_paper.linear_heads import EXACT_FUN, FATS, FEDAVG, FEDERATED
from benchmarks.ridge_paper.results import Results
from benchmarks.ridge_paper.stream import StreamResult
from benchmarks.ridge_paper.width import KINDS, Width

PANEL = (3.6, 2.7)  # inches
# Colour, line, marker: from dark to light, so that grey prints tell them apart.
STYLES: dict[str, tuple[str, str, str]] = {
    "ridge-exact": ("#000000", "-", "o"),
    "ridge-woodbury": ("#1b3a6b", "-", "s"),
    "acu": ("#7a1f5c", "-", "D"),
    "Variant A": ("#2f6f4f", "--", "o"),
    "Variant B": ("#3f7fbf", "--", "s"),
    "ACU": ("#b0569a", "--", "D"),
    REFIT: ("#c07a2c", ":", "^"),
    FEDAVG: ("#9a9a9a", "-.", "v"),
    FATS: ("#5f5f5f", ":", "x"),
    EXACT_FUN: ("#c9a227", "-.", "+"),
}
LABELS = {
    "Variant A": "Variant A, plain float64",
    "Variant B": "Variant B, plain float64",
    "ACU": "ACU, plain float64",
    "ridge-exact": "ridge-exact (0 bits off)",
    "ridge-woodbury": "ridge-woodbury, proven",
    "acu": "acu, proven",
}
RIDGE = (
    *("ridge-exact", "ridge-woodbury", "Variant A", "Variant B"),
    *(REFIT, *FEDERATED),
)
# ACU's baselines, whose colours only these figures need.
BASELINE_STYLES = {
    name: (colour, "--" if number % 2 else "-", "o^svDx+"[number])
    for number, (name, colour) in enumerate(
        zip(
            BASELINES,
            ("#c07a2c", "#5f5f5f", "#2f6f4f", "#c9a227", "#3f7fbf", "#a03030", "#9a9a9a"),
            strict=True,
        )
    )
}


def draw_all(results: Results, out: Path) -> list[str]:
    """Write a PNG for each figure that has results; return the files' names."""
    figures: dict[str, Figure] = {}
    for requests, number in ((25, "3"), (50, "4")):
        runs = [run for run in results.chunks if run.requests == requests]
        if runs:
            figures[f"ridge-figure2-{requests}.png"] = _chunks(runs, RIDGE, ("test", "time"))
        streams = [run for run in results.continual if run.requests == requests]
        if streams:
            figures[f"acu-figure{number}.png"] = _courses(streams)
    if results.stream:
        figures["ridge-figure3.png"] = _stream(results.stream)
    if results.width:
        figures["acu-width.png"] = _width(results.width)
    if results.cost:
        figures["deletion-by-n.png"] = _by_n(results.cost[0])
    for name, figure in figures.items():
        # Without the version in it, the same numbers give the same file.
        figure.savefig(out / name, dpi=110, metadata={"Software": ""})
    return list(figures)


def _grid(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(
            figsize=(max(columns, 2) * PANEL[0], rows * PANEL[1] + 0.6), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in axes]


def _line(
    axes: Axes,
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    every: int = 1,
    size: float = 4,
) -> None:
    colour, line, marker = (STYLES | BASELINE_STYLES)[name]
    axes.plot(
        x,
        y,
        color=colour,
        linestyle=line,
        marker=marker,
        markersize=size,
        markerfacecolor="none" if line == "--" or size > 4 else colour,
        markevery=every,
        linewidth=1.2,
        label=LABELS.get(name, name),
    )


def _legend(figure: Figure, panels: Sequence[Axes], columns: int) -> None:
    entries = [axes.get_legend_handles_labels() for axes in panels]
    figure.legend(
        [handle for handles, _ in entries for handle in handles],
        [label for _, labels in entries for label in labels],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def _cumulative(seconds: Sequence[float], requests: int) -> tuple[list[int], list[float]]:
    """Return (requests answered, seconds so far); a retraining stands for several requests."""
    each = requests // len(seconds)
    at = [each * (i + 1) for i in range(len(seconds))]
    total: list[float] = (np.cumsum(seconds) * each).tolist()
    return at, total


def _chunks(runs: list[Chunks], names: Sequence[str], panels: Sequence[str]) -> Figure:
    figure, grid = _grid(len(panels), len(runs))
    for row, panel in zip(grid, panels, strict=True):
        for axes, run in zip(row, runs, strict=True):
            for i, name in enumerate(names):
                if panel == "time":
                    x, y = _cumulative(run.seconds[name], run.requests)
                    _line(axes, name, x, y, max(1, len(x) // 5))
                else:
                    # Most curves coincide: hollow markers, each inside the one before.
                    size = 4 + 1.5 * (len(names) - 1 - i)
                    accuracies = [100 * value for value in run.test[name]]
                    at = run.federated_at if name in FEDERATED else run.at
                    _line(axes, name, at, accuracies, size=size)
            _answered(axes, panel, run.requests)
    _titled(figure, grid, [(run.data, run.rows) for run in runs])
    return figure


def _courses(runs: list[Continual]) -> Figure:
    """Draw ACU and its baselines after each request; one that refused ends where it did."""
    figure, grid = _grid(len(COURSE), len(runs))
    for row, part in zip(grid, COURSE, strict=True):
        panel = "time" if part == "seconds" else part
        for axes, run in zip(row, runs, strict=True):
            for name in (*BASELINE_STYLES, *ANALYTIC):
                values = run.courses.get(name, {}).get(part, [])
                scaled = values if panel == "time" else [100 * value for value in values]
                x = range(1, len(values) + 1)
                _line(axes, name, x, scaled, max(1, run.requests // 5))
            _answered(axes, panel, run.requests)
    _titled(figure, grid, [(run.data, run.rows) for run in runs])
    return figure


TITLES = {
    "test": "test accuracy, %",
    "retained": "accuracy on retained rows, %",
    "time": "cumulative time, s",
}


def _answered(axes: Axes, panel: str, requests: int) -> None:
    if panel == "time":
        axes.set_yscale("log")
    axes.set_ylabel(TITLES[panel])
    axes.set_xlabel(f"requests answered, of {requests}")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.grid(alpha=0.25, which="major")


def _titled(figure: Figure, grid: list[list[Axes]], leaving: Sequence[tuple[str, int]]) -> None:
    """Write over each column its data and how many rows leave, and below all the legend."""
    for axes, (data, rows) in zip(grid[0], leaving, strict=True):
        axes.set_title(f"{data}: {rows:,} rows leave", fontsize=9)
    _legend(figure, grid[-1][:1], 3)


def _stream(runs: list[StreamResult]) -> Figure:
    figure, grid = _grid(1, len(runs))
    for axes, run in zip(grid[0], runs, strict=True):
        for name in STYLES:
            x, y = _cumulative(run.seconds[name], run.length)
            _line(axes, name, x, y, max(1, len(x) // 5))
        axes.set_yscale("log")
        axes.set_xlabel("single deletions answered")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_ylabel("cumulative time, s")
        axes.set_title(run.data, fontsize=9)
        axes.grid(alpha=0.25)
    _legend(figure, grid[0][:1], 4)
    return figure


def _width(rows: list[Width]) -> Figure:
    figure, ((time, memory),) = _grid(1, 2)
    memory.set_title("its memory", fontsize=9)
    styles = {"float64": ("#8a8a8a", "white"), "integers": ("#000000", "#000000")}
    works = {"forget_one": ("o", "-", "forget 1 row"), "learn": ("s", ":", "learn all rows")}
    for kind in KINDS:
        mine = [row for row in rows if row.kind == kind]
        widths = [row.width for row in mine]
        colour, face = styles[kind]
        name = "plain float64" if kind == "float64" else "exact + proven"
        for work, (marker, line, label) in works.items():
            time.plot(
                widths,
                [getattr(row, work) for row in mine],
                color=colour,
                marker=marker,
                linestyle=line,
                markerfacecolor=face,
                label=f"{label}, {name}",
            )
        memory.plot(
            widths,
            [row.peak / 1024 for row in mine],
            color=colour,
            marker="D",
            markerfacecolor=face,
            label=f"peak memory, {name}",
        )
    widths = sorted({row.width for row in rows})
    memory.plot(
        widths, [8 * d * d / 2**30 for d in widths], "k:", linewidth=1, label="one d × d matrix"
    )
    for axes, label in ((time, "time, s"), (memory, "peak memory of the process, GiB")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(widths, [f"{d:,}" for d in widths])
        axes.minorticks_off()
        axes.set_xlabel("width d of the random features")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
    time.set_title(f"ACU on {rows[0].data}, {rows[0].rows:,} rows", fontsize=9)
    _legend(figure, (time, memory), 3)
    return figure


def _by_n(cost: ClaimedCosts) -> Figure:
    figure, grid = _grid(1, 1)
    axes = grid[0][0]
    _line(axes, REFIT, cost.sizes, [1e3 * value for value in cost.refits])
    _line(axes, "ridge-woodbury", cost.sizes, [1e3 * value for value in cost.deletion])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(cost.sizes, [f"{n:,}" for n in cost.sizes])
    axes.minorticks_off()
    axes.set_xlabel("rows retained, n")
    axes.set_ylabel("one deletion, ms")
    axes.set_title(f"d = {cost.d}, c = {cost.c}", fontsize=9)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure
