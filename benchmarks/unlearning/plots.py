"""The Pareto plot: how much compute a method takes against how far it is from retraining."""

from math import isnan
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN
from benchmarks.unlearning.puf_tables import name_of, ordered
from benchmarks.unlearning.summary import Seeds
from benchmarks.unlearning.targets import CHEAPER, CLOSED

PANEL = (5.2, 4.2)  # inches
OURS = {"puf-special": "o", "puf-regular": "s", "hf-kcu": "D", "natural": "v"}


def draw(seeds: Seeds, title: str, file: Path) -> None:
    """Write one panel as PNG: compute over retraining's, |forget accuracy gap| in points."""
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=PANEL, layout="constrained")
        axes = figure.subplots()
    _levels(axes, seeds)
    for label in ordered(seeds.labels):
        if label not in (ORIGINAL, AGAIN):
            _point(axes, seeds, label)
    axes.set_xscale("log")
    axes.set_xlabel("counted operations, of a retraining (logarithmic)")
    axes.set_ylabel("gap in forget accuracy to the retrained model, points")
    axes.set_ylim(bottom=-1)
    axes.set_title(f"{title}; means of {len(seeds.seeds)} seeds, 95 % intervals", fontsize=9)
    axes.grid(alpha=0.25)
    # Without the version in it, the same numbers give the same file.
    figure.savefig(file, dpi=110, metadata={"Software": ""})


def _levels(axes: Axes, seeds: Seeds) -> None:
    first = 100 * seeds.gap(ORIGINAL, "forget").mean
    axes.axhline(first, color="#9a9a9a", linestyle=":", label="original model")
    noise = 100 * seeds.gap(AGAIN, "forget").mean
    if not isnan(noise):
        axes.axhline(noise, color="#2f6f4f", linestyle="--", label="retraining, another seed")
    axes.axhspan(0, CLOSED * first, xmax=1, color="#3f7fbf", alpha=0.10)
    axes.axvline(1 / CHEAPER, color="#3f7fbf", linewidth=0.8, label="targets: 20×, a third")
    axes.legend(frameon=False, fontsize=7, loc="upper right")


def _point(axes: Axes, seeds: Seeds, label: str) -> None:
    cheaper, gap = seeds.ratio(label, "flops"), seeds.gap(label, "forget")
    if isnan(cheaper.mean) or isnan(gap.mean):
        return
    x, y = 1 / cheaper.mean, 100 * gap.mean
    ours = label in OURS or label == RETRAIN
    axes.errorbar(
        [x],
        [y],
        yerr=None if isnan(gap.half) else [100 * gap.half],
        marker=OURS.get(label, "*" if ours else "."),
        color="#000000" if ours else "#c07a2c",
        markersize=6 if ours else 5,
        elinewidth=0.6,
        capsize=2,
    )
    axes.annotate(
        name_of(label).strip("`"),
        (x, y),
        textcoords="offset points",
        xytext=(4, 4),
        fontsize=6.5,
        color="#000000" if ours else "#7a4a10",
    )
