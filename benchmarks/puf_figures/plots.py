"""The pictures: recovery round by round, and each configuration as a point."""

from collections.abc import Sequence
from math import isnan
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.puf_figures.curves import ORIGINAL, RETRAIN, Curve, baselines, puf
from benchmarks.puf_figures.points import Point, mean_curve, points
from benchmarks.unlearning import labels
from benchmarks.unlearning.names import name_of

DOTS = 110  # an inch
PANEL = (4.4, 3.4)  # inches
COLOURS = {
    "puf-special": "#b03030", "puf-regular": "#1f3f6f", "natural": "#6a6a6a", "not": "#8a5a22",
    "pga": "#2f6f4f", "fed-au": "#7a4a9a", "mode": "#3f7fbf",
}  # fmt: skip
SHOWN = (puf("special", 2.0), *baselines())  # figure 4 has PUF-Special alone of PUF


def family(label: str) -> str:
    """Return the method of a configuration's label."""
    return label.partition(" ")[0]


def draw_recovery(curves: Sequence[Curve], setting: str, file: Path) -> None:
    """Write figure 4: test and forget accuracy by recovery round, means over seeds."""
    figure, (left, right) = _figure(2)
    for axes, part in ((left, "test"), (right, "forget")):
        for label, style in ((ORIGINAL, ":"), (RETRAIN, "--")):
            [level] = mean_curve(curves, setting, label, part)
            axes.axhline(100 * level, color="#444444", linestyle=style, label=name_of(label))
        for shown in SHOWN:
            found = mean_curve(curves, setting, shown.label, part)
            if found:
                y = [100 * value for value in found]
                said = shown.label if shown.family != shown.label else name_of(shown.label)
                axes.plot(range(len(y)), y, color=COLOURS[shown.family], label=said)
        axes.set_xlabel("recovery round; 0 is the step alone")
        axes.set_ylabel(f"{part} accuracy, %")
    left.legend(frameon=False, fontsize=7)
    _save(figure, file)


def draw_points(curves: Sequence[Curve], setting: str, score: str, file: Path) -> None:
    """Write figure 5 or 6: rounds to the retrained test score against the forget gap."""
    figure, (axes,) = _figure(1)
    figure.set_size_inches(7.6, 5.0)
    found = [part for part in points(curves, setting) if not isnan(part.gap.mean)]
    for part in found:
        _point(axes, part)
    axes.set_xlabel(f"recovery rounds until the retrained model's test {score}")
    axes.set_ylabel(f"gap in forget {score} to the retrained model, points")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.12)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    names = [
        labels.Name(_short(part.label), *_place(part), COLOURS[family(part.label)])
        for part in found
    ]
    labels.write(axes, names, [])
    _save(figure, file)


def _point(axes: Axes, part: Point) -> None:
    x, y = _place(part)
    whole = part.reached == part.seeds
    colour = COLOURS[family(part.label)]
    axes.plot([x], [y], marker="o", color=colour, markerfacecolor=colour if whole else "none")


def _place(part: Point) -> tuple[float, float]:
    return part.rounds.mean, 100 * part.gap.mean


def _short(label: str) -> str:
    method, _, rest = label.partition(" ")
    return rest.replace("η_u", "η").replace("E_u", "E") if rest else name_of(method)


def _figure(columns: int) -> tuple[Figure, list[Axes]]:
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(columns * PANEL[0], PANEL[1]), dpi=DOTS, layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False)
    for one in axes[0]:
        one.grid(alpha=0.2)
    return figure, list(axes[0])


def _save(figure: Figure, file: Path) -> None:
    # Without the version in it, the same numbers give the same file.
    figure.savefig(file, dpi=DOTS, metadata={"Software": ""})
