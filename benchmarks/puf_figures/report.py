"""Curves as JSON, one on each line, and the generated part of the page."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.puf_figures.curves import ORIGINAL, RETRAIN, Curve
from benchmarks.puf_figures.plots import draw_points, draw_recovery
from benchmarks.puf_figures.points import Point, mean_curve, points, seeds_of
from benchmarks.unlearning.markdown import NONE, plain, table
from benchmarks.unlearning.markdown import points as percent
from benchmarks.unlearning.report import BEGIN, END, parts
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.summary import Interval

FILE, PAGE = "puf-figures.json", "puf-figures.md"
FIGURES = {"digits": "Figures 4 and 5", "cifar": "Figures 4 and 5", "masks": "Figure 6"}
RECOVERY = tuple(name for name in FIGURES if name != "masks")  # those with figure 4
HEAD = (
    "configuration", "rounds to the retrained test {}", "reached", "test {} Δ there",
    "forget {} Δ there", "forget {} after the step", "refused",
)  # fmt: skip


def format_curves(curves: Sequence[Curve]) -> str:
    """Return the JSON text of all curves, sorted."""
    ordered = sorted(curves, key=lambda one: (one.setting, one.seed))  # stable: as measured
    lines = ",\n".join(json.dumps(asdict(curve), sort_keys=True) for curve in ordered)
    return f'{{"curves": [\n{lines}\n]}}\n'


def parse_curves(text: str) -> list[Curve]:
    """Return the curves of a JSON text. Raises ValueError, KeyError, TypeError for others."""
    found = []
    for entry in json.loads(text)["curves"]:
        given = {**entry, "test": tuple(entry["test"]), "forget": tuple(entry["forget"])}
        found.append(Curve(**given))
    return found


def write_page(curves: Sequence[Curve], out: Path) -> list[str]:
    """Draw the figures and replace what stands between the markers; return the files."""
    pictures = []
    for setting in FIGURES:
        if not seeds_of(curves, setting):
            continue
        draw_points(curves, setting, _score(setting), out / f"puf-steps-{setting}.png")
        pictures.append(f"puf-steps-{setting}.png")
        if setting in RECOVERY:
            draw_recovery(curves, setting, out / f"puf-recovery-{setting}.png")
            pictures.append(f"puf-recovery-{setting}.png")
    page = out / PAGE
    text = page.read_text() if page.exists() else f"# PUF's figures\n\n{BEGIN}\n{END}\n"
    before, _, after = parts(text, page.name)
    page.write_text(f"{before}{BEGIN}{generated(curves)}{END}{after}")
    return [PAGE, *pictures]


def generated(curves: Sequence[Curve]) -> str:
    """Return what stands between the markers."""
    text = ""
    for setting, title in FIGURES.items():
        seeds = seeds_of(curves, setting)
        if seeds:
            text += f"\n\n## {title}: {setting}\n\n{_section(curves, setting, len(seeds))}"
    return f"{text}\n"


def _section(curves: Sequence[Curve], setting: str, seeds: int) -> str:
    score = _score(setting)
    levels = "; ".join(
        f"{said} model: test {_level(curves, setting, label, 'test')}, "
        f"forget {_level(curves, setting, label, 'forget')}"
        for label, said in ((ORIGINAL, "Original"), (RETRAIN, "retrained"))
    )
    head = [name.format(score) for name in HEAD]
    body = [_row(curves, setting, part) for part in points(curves, setting)]
    pictures = (
        f"![Each configuration by the rounds of recovery it needs and the gap it leaves]"
        f"(puf-steps-{setting}.png)\n"
    )
    if setting in RECOVERY:
        pictures = (
            f"![Test and forget accuracy by recovery round](puf-recovery-{setting}.png)\n\n"
            f"{pictures}"
        )
    return (
        f"{SETTINGS[setting].about}; {seeds} {'seed' if seeds == 1 else 'seeds'}. {levels}."
        f"\n\n{pictures}\n"
        f"{table(head, body)}"
    )


def _row(curves: Sequence[Curve], setting: str, part: Point) -> tuple[str, ...]:
    stepped = mean_curve(curves, setting, part.label, "forget")
    return (
        f"`{part.label}`",
        plain(part.rounds),
        f"{part.reached} of {part.seeds}",
        percent(part.test),
        percent(part.gap),
        percent(Interval(stepped[0], float("nan"), 1)) if stepped else NONE,
        str(part.refused) if part.refused else "",
    )


def _level(curves: Sequence[Curve], setting: str, label: str, part: str) -> str:
    return f"{100 * mean_curve(curves, setting, label, part)[0]:.1f}"


def _score(setting: str) -> str:
    return "Dice" if SETTINGS[setting].data == "digit-masks" else "accuracy"
