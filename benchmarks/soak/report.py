"""The page of soaks, and its figures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.soak.growth import LOGGED, Trend
from benchmarks.soundness.report import BEGIN, END, table

VERDICT = ("lost", "duplicated", "stuck", "fsck_failures", "wrong", "ended", "grown")
PAGE, FILE, FIGURE = "soak.md", "soak.json", "soak-{}.png"
PLACES = {"files": "SQLite and the file broker", "servers": "PostgreSQL and Redis"}
KEPT_SAMPLES = 60  # in the file: what the figure needs
PANELS = (("memory MiB", "memory, MiB"), ("open files", "open files"), ("threads", "threads"))
COLOURS = {"api": "#1f3f6f", "worker": "#b03030"}


def renew(out: Path, on: str, found: Mapping[str, Any]) -> None:
    """Write one soak into the file, the page and the figure of a folder; others stay."""
    file = out / FILE
    known = json.loads(file.read_text()) if file.exists() else {}
    step = max(1, len(found["samples"]) // KEPT_SAMPLES)
    known[on] = {**found, "samples": [_shown(one) for one in found["samples"][::step]]}
    known = {name: known[name] for name in PLACES if name in known}
    file.write_text(json.dumps(known, indent=1) + "\n")
    draw(known[on]["samples"], out / FIGURE.format(on))
    page = out / PAGE
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{render(known)}\n{END}{rest.partition(END)[2]}")


def _shown(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the figure shows of a sample."""
    names = {f"{role} {kind}" for role in COLOURS for kind, _ in PANELS}
    held = {name: round(value, 2) for name, value in sample["held"].items() if name in names}
    return {"seconds": sample["seconds"], "entries": sample["entries"], "held": held}


def render(known: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    return "\n".join(_section(on, found) for on, found in known.items())


def _section(on: str, found: Mapping[str, Any]) -> str:
    done = found["done"]
    trends = [Trend(**one) for one in found["trends"]]
    counted = [(f"`{name}`", str(len(found[name]))) for name in VERDICT]
    parts = [
        f"## {PLACES[on]}\n",
        f"{found['seconds'] / 60:.0f} minutes, {found['kills']} kills, "
        f"{found['entries']:,} log entries. "
        f"{', '.join(found['machine'].values())}.\n",
        "Done: " + ", ".join(f"`{name}` {number:,}" for name, number in done.items()) + ".\n",
        table(("figure", "found"), counted),
        *(f"- `{name}`: {one}" for name in VERDICT for one in found[name]),
        f"![Memory, open files and threads of what is not killed]({FIGURE.format(on)})\n",
        "What must not grow; means of the second and of the last quarter, without what is 0:\n",
        table(
            ("held", "second quarter", "last quarter"),
            [
                (one.name, _number(one.before), _number(one.after))
                for one in trends
                if one.name not in LOGGED and (one.before or one.after)
            ],
        ),
        "What grows with the log, for a thousand of its entries:\n",
        table(
            ("held", "second quarter", "last quarter"),
            [
                (one.name, _number(one.pace_before), _number(one.pace_after))
                for one in trends
                if one.name in LOGGED
            ],
        ),
    ]
    return "\n".join(parts)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def draw(samples: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write memory, open files and threads of the processes that live through the soak."""
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9.6, 2.6), layout="constrained")
        for axes, (kind, title) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            for role, colour in COLOURS.items():
                known = [one for one in samples if f"{role} {kind}" in one["held"]]
                axes.plot(
                    [one["seconds"] / 60 for one in known],
                    [one["held"][f"{role} {kind}"] for one in known],
                    color=colour,
                    label=role,
                )
            axes.set_ylim(bottom=0)
            axes.set_xlabel("minutes")
            axes.set_title(title)
        axes.legend(frameon=False)
        figure.savefig(file, dpi=110)
