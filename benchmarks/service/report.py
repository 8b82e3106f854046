"""The report of one run: a page with figures, and its comparison with a later run.

    python -m benchmarks.service.report check COMMITTED.json FRESH.json

Only ratios to a floor of the same run are compared: durations say more of the machine than of
the code. Noise is what the rounds of a run differ by, (largest - smallest) / median, of the
committed run and of the fresh one together, and at least LEAST; of a ratio that a run measures
once it is WITHOUT_ROUNDS. A ratio that is worse by more than this fails. Of a full run, the
ratios of the quick run made with it are compared: the sizes of both differ, and with them the
ratios.
"""

import json
import os
import platform
import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from benchmarks.soundness.report import BEGIN, END, table

Found = Mapping[str, Any]

LEAST = 0.10  # relative; what a ratio of a quick run may differ by from one minute to the next
WITHOUT_ROUNDS = 0.25  # of a ratio that a run measures once
ROUNDS = "_rounds"
RATIO = re.compile("_ratio|_share|_growth")
LIBRARIES = (
    "fastapi",
    "uvicorn",
    "pydantic",
    "sqlalchemy",
    "psycopg",
    "celery",
    "cryptography",
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """What a ratio says, and which way is better."""

    meaning: str
    better: Literal["higher", "lower"]


RATIOS = {
    "submission_ratio_postgres_1": Ratio(
        "submissions of one API process to bare inserts, PostgreSQL", "higher"
    ),
    "submission_ratio_postgres_2": Ratio("the same, two API processes", "higher"),
    "submission_ratio_postgres_1_32_connections": Ratio(
        "one API process over 32 connections", "higher"
    ),
    "submission_ratio_postgres_2_32_connections": Ratio(
        "two API processes over 32 connections", "higher"
    ),
    "submission_ratio_sqlite": Ratio("submissions to bare inserts, SQLite", "higher"),
    "certified_share_under_load": Ratio(
        "certificates a second under submissions to those without", "higher"
    ),
    "execute_growth_100k_over_1k": Ratio(
        "executing one erasure from 100,000 rows to one from 1,000", "lower"
    ),
    "log_append_growth_1m": Ratio("an append at 1 million entries to one at few", "lower"),
    "log_append_growth_10m": Ratio("an append at 10 million entries to one at few", "lower"),
    "log_inclusion_proof_growth_1m": Ratio(
        "the same of an inclusion proof, 1 million", "lower"
    ),
    "log_inclusion_proof_growth_10m": Ratio("the same, 10 million", "lower"),
    "artifact_unlink_growth": Ratio("unlinking an artifact among many to among few", "lower"),
    "api_start_ratio": Ratio("processor time of the API's start to the bare app's", "lower"),
    "worker_start_ratio": Ratio(
        "processor time of a worker's start to the bare app's", "lower"
    ),
    "verify_start_ratio": Ratio(
        "processor time of `lethe certificate verify` to `python -c pass`", "lower"
    ),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One ratio in two runs. worse: relative change for the worse; noise: what is allowed."""

    name: str
    committed: float
    fresh: float
    worse: float
    noise: float

    @property
    def failed(self) -> bool:
        """Whether it is worse beyond noise."""
        return self.worse > self.noise


def compare(committed: Found, fresh: Found) -> list[Comparison]:
    """Return every ratio of both runs beside each other.

    Raises ValueError if the fresh run lacks one: it may have been renamed, not improved.
    """
    base = committed.get("quick_run", committed) if fresh["quick"] else committed
    compared = []
    for name in _ratios(base):
        if name not in fresh:
            raise ValueError(
                f"the fresh run lacks {name}: renew the committed one, `make bench`"
            )
        before, after = base[name], fresh[name]
        better = after / before if RATIOS[name].better == "higher" else before / after
        noise = max(LEAST, spread(base, name) + spread(fresh, name))
        if name + ROUNDS not in base or name + ROUNDS not in fresh:
            noise = WITHOUT_ROUNDS
        compared.append(Comparison(name, before, after, 1 - better, noise))
    return compared


def spread(found: Found, name: str) -> float:
    """Return what the rounds of a ratio differ by, relative to their median; 0 without any."""
    rounds = sorted(found.get(name + ROUNDS, ()))
    middle = rounds[len(rounds) // 2] if len(rounds) > 1 else 0.0
    return (rounds[-1] - rounds[0]) / middle if middle else 0.0


def _ratios(found: Found) -> list[str]:
    """Return the names of the ratios. Raises ValueError for one that RATIOS lacks."""
    named = [n for n, value in found.items() if isinstance(value, float)]
    unknown = [n for n in named if RATIO.search(n) and n not in RATIOS]
    if unknown:
        raise ValueError(f"describe these in RATIOS: {', '.join(unknown)}")
    return [name for name in RATIOS if name in found]


def machine() -> dict[str, str]:
    """Return what the figures depend on; neither paths nor names of hosts or users."""
    model = platform.machine()
    if (cpu := Path("/proc/cpuinfo")).exists():
        names = [n for n in cpu.read_text().splitlines() if n.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "python": f"Python {platform.python_version()}",
        "libraries": ", ".join([*versions, f"SQLite {sqlite3.sqlite_version}"]),
    }


def write_page(found: Found, page: Path) -> None:
    """Write figures beside a page, and what stands between its markers.

    Raises ValueError for a page without them.
    """
    text = page.read_text() if page.exists() else f"# Service\n\n{BEGIN}\n{END}\n"
    before, opened, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (opened and closed):
        raise ValueError(f"{page.name} has no markers {BEGIN} and {END}")
    figures = draw(found, page.parent)
    page.write_text(f"{before}{BEGIN}\n\n{render(found, figures)}\n{END}{after}")


def render(found: Found, figures: Sequence[str]) -> str:
    """Return Markdown of everything measured in one run."""
    size = "a quick run" if found["quick"] else "full"
    ratios = [
        (
            f"`{name}`",
            RATIOS[name].meaning,
            f"{found[name]:.3f}",
            f"±{spread(found, name) / 2:.1%}" if name + ROUNDS in found else "",
            RATIOS[name].better,
        )
        for name in _ratios(found)
    ]
    others = [
        (f"`{name}`", f"{value:.4g}")
        for name, value in found.items()
        if isinstance(value, float) and name not in RATIOS
    ]
    parts = [
        f"Run: {size}. {'; '.join(found['machine'].values())}.\n",
        table(("ratio", "of", "measured", "rounds", "better"), ratios),
        *(f"![{_caption(name)}]({name})\n" for name in figures),
        "All values of the run; seconds, a second or milliseconds as named:\n",
        table(("value", "measured"), others),
    ]
    return "\n".join(parts)


def _caption(name: str) -> str:
    return name.removesuffix(".svg").replace("-", " ").capitalize()


def draw(found: Found, folder: Path) -> list[str]:
    """Draw what the run has values for; return all figures of the page, flame graphs too."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "lethe"  # or ids differ in each run
    drawn = []
    panels = {
        "service-submissions.svg": (
            "answers a second",
            {
                "PostgreSQL": ("submissions_per_second_postgres", "bare_per_second_postgres"),
                "PostgreSQL, 2 processes": (
                    "submissions_per_second_postgres_2",
                    "bare_per_second_postgres_2",
                ),
                "SQLite": ("submissions_per_second_sqlite", "bare_per_second_sqlite"),
            },
            ("Lethe", "bare insert"),
        ),
        "service-startup.svg": (
            "processor seconds until ready",
            {
                "API": ("api_ready_cpu_seconds", "bare_ready_cpu_seconds"),
                "worker": ("worker_ready_cpu_seconds", "bare_ready_cpu_seconds"),
                "verify": ("verify_process_cpu_seconds", "pass_cpu_seconds"),
            },
            ("Lethe", "floor"),
        ),
    }
    for name, (unit, groups, labels) in panels.items():
        groups = {title: pair for title, pair in groups.items() if set(pair) <= set(found)}
        if not groups:
            continue
        figure = Figure(figsize=(6.4, 2.6), layout="constrained")
        axes = figure.subplots()
        for side, (label, shade) in enumerate(zip(labels, ("#1b3a6b", "#b8b8b8"), strict=True)):
            places = [place + 0.4 * side for place in range(len(groups))]
            heights = [found[pair[side]] for pair in groups.values()]
            bars = axes.bar(places, heights, 0.38, label=label, color=shade)
            axes.bar_label(bars, fmt="%.3g", fontsize=8)
        axes.set_xticks([place + 0.2 for place in range(len(groups))], list(groups))
        axes.set_ylabel(unit)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(folder / name, metadata={"Date": None})
        drawn.append(name)
    return drawn + sorted(path.name for path in folder.glob("service-flame-*.svg"))


def main(arguments: Sequence[str]) -> int:
    """Compare a fresh run with the committed one; return 1 if a ratio is worse beyond noise."""
    _, committed, fresh = arguments
    compared = compare(
        json.loads(Path(committed).read_text()), json.loads(Path(fresh).read_text())
    )
    for one in compared:
        verdict = "WORSE" if one.failed else "ok"
        print(
            f"{one.name:32} {one.committed:8.3f} -> {one.fresh:8.3f}"
            f"  worse by {one.worse:7.1%}, noise {one.noise:6.1%}  {verdict}"
        )
    return int(any(one.failed for one in compared))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
