"""The Pareto plot: how much compute a method takes against how far it is from retraining."""

from math import isnan
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from benchmarks.unlearning import labels
from benchmarks.unlearning.contenders import AGAIN, RETRAIN
from benchmarks.unlearning.names import name_of
from benchmarks.unlearning.pareto import Place, front, nothing, places
from benchmarks.unlearning.summary import Seeds
from benchmarks.unlearning.targets import CHEAPER, CLOSED

PANEL = (8.0, 5.6)  # inches
DOTS = 110  # an inch
BEST, OTHER, PARTLY, TARGET = "#1f3f6f", "#8a5a22", "#a8a8a8", "#3f7fbf"


def draw(seeds: Seeds, title: str, file: Path) -> list[Annotation]:
    """Write one panel as PNG: compute over retraining's, |forget accuracy gap| in points.

    Returns the names that were written.
    """
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=PANEL, dpi=DOTS, layout="constrained")
        axes = figure.subplots()
    found, left = places(seeds), nothing(seeds)
    best = front(found, left)
    axes.set_xscale("log")
    axes.set_xlabel("counted operations, share of a retraining (logarithmic)")
    axes.set_ylabel("gap in forget accuracy to the retrained model, points")
    axes.set_title(f"{title}; means of {len(seeds.seeds)} seeds, 95 % intervals", fontsize=9)
    axes.grid(alpha=0.2)
    for place in found:
        _point(axes, place, best)
    _limits(axes, found, left)
    _levels(axes, seeds, left)
    _front(axes, best)
    legend = axes.legend(frameon=False, fontsize=7, loc="upper right")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what is written now moves nothing
    # The front first: its names stand nearest to their points.
    ranked = sorted(found, key=lambda place: (place not in best, place.gap))
    names = [_name(place, best) for place in ranked]
    lines = [*_bars(axes, found), _across(axes, left)]
    written = labels.write(axes, names, [legend.get_window_extent()], lines)
    # Without the version in it, the same numbers give the same file.
    figure.savefig(file, dpi=DOTS, metadata={"Software": ""})
    return written


def _limits(axes: Axes, found: list[Place], left: float) -> None:
    """Leave room above for the legend and at the sides for names."""
    compute = [place.compute for place in found]
    axes.set_xlim(min([*compute, 1 / CHEAPER]) / 2, 2.5 * max(compute))
    tops = [place.gap + (0 if isnan(place.half) else place.half) for place in found]
    axes.set_ylim(-4, 1.12 * max([*tops, left]))


def _levels(axes: Axes, seeds: Seeds, left: float) -> None:
    axes.axhline(left, color="#6a6a6a", linestyle=":", label="doing nothing")
    noise = 100 * seeds.gap(AGAIN, "forget").mean
    if not isnan(noise):
        said = "seed noise: retraining with another seed"
        axes.axhline(noise, color="#2f6f4f", linestyle="--", linewidth=0.9, label=said)
    edge = axes.get_xlim()[0]
    region = Rectangle(
        (edge, 0),
        1 / CHEAPER - edge,
        CLOSED * left,
        facecolor=TARGET,
        edgecolor=TARGET,
        alpha=0.16,
        label="targets: 20× less, a third of the gap left",
    )
    axes.add_patch(region)


def _front(axes: Axes, best: list[Place]) -> None:
    axes.step(
        [place.compute for place in best],
        [place.gap for place in best],
        where="post",
        color=BEST,
        linewidth=1.0,
        alpha=0.8,
        label="Pareto front of the means",
    )


def _point(axes: Axes, place: Place, best: list[Place]) -> None:
    color = _color(place, best)
    kept = place in best
    axes.errorbar(
        [place.compute],
        [place.gap],
        yerr=None if isnan(place.half) else [place.half],
        marker="*" if place.label == RETRAIN else ("o" if kept else "."),
        color=color,
        markersize=9 if place.label == RETRAIN else 5,
        elinewidth=0.8 if kept else 0.5,
        capsize=2 if kept else 1,
        alpha=1.0 if kept else 0.75,
    )


def _bars(axes: Axes, found: list[Place]) -> list[Bbox]:
    """Return the boxes of the intervals in pixels."""
    boxes = []
    for place in found:
        half = 0.0 if isnan(place.half) else place.half
        ends = [(place.compute, place.gap - half), (place.compute, place.gap + half)]
        (x, low), (_, high) = axes.transData.transform(ends)
        boxes.append(Bbox.from_extents(x - 1, low, x + 1, high))
    return boxes


def _across(axes: Axes, level: float) -> Bbox:
    """Return the box of a level's line in pixels."""
    (left, y), (right, _) = axes.transData.transform([(x, level) for x in axes.get_xlim()])
    return Bbox.from_extents(left, y - 1, right, y + 1)


def _name(place: Place, best: list[Place]) -> labels.Name:
    text = name_of(place.label).strip("`") + ("" if place.whole else " (not in all seeds)")
    weight = "bold" if place in best else "normal"
    return labels.Name(text, place.compute, place.gap, _color(place, best), weight)


def _color(place: Place, best: list[Place]) -> str:
    if place in best:
        return BEST
    return OTHER if place.whole else PARTLY
