"""What was seen, as the tables of docs/monitoring.md."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.alerts.dashboard import OF_LOAD, PANELS, QUERIES, Change, required
from tests.e2e.alerts.fault import Fault

ALERTS = "<!-- what make alerts-check saw -->"
SHOWN = "<!-- what the dashboard showed -->"
END = "<!-- until here -->"
MOST = 2  # series of a panel: those that changed most


@dataclass(frozen=True)
class Seen:
    """The seconds until a fault's alerts fired and until they ended, and what was beside."""

    fired: float
    ended: float
    beside: set[str]
    changes: Mapping[str, Sequence[Change]]
    empty: set[str]


_seen: dict[str, Seen] = {}


def note(fault: Fault, seen: Seen) -> None:
    """Remember what was seen of a fault."""
    _seen[fault.name] = seen


def write(page: Path, faults: Sequence[Fault]) -> None:
    """Renew the tables of a page. Every fault must have been seen."""
    missing = {fault.name for fault in faults} - _seen.keys()
    assert not missing, f"not planted or not seen: {missing}"
    said = subprocess.run(
        ["prometheus", "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"version (\S+)", said.stdout + said.stderr)
    assert found is not None
    head = f"Seen with Prometheus {found[1]}: {len(faults)} faults.\n\n"
    text = _between(page.read_text(), ALERTS, head + alerts_table(faults))
    head = f"Each of the {len(QUERIES)} queries of the {len(PANELS)} panels returned data.\n\n"
    page.write_text(_between(text, SHOWN, head + panels_table(faults)))


def _between(text: str, begin: str, table: str) -> str:
    before, found, rest = text.partition(begin)
    _, ends, after = rest.partition(END)
    assert (found, ends) == (begin, END)
    return f"{before}{begin}\n{table}{END}{after}"


def alerts_table(faults: Sequence[Fault]) -> str:
    """Return the table of faults and their alerts."""
    rows = [
        (
            ", ".join(map(named, fault.alerts)),
            fault.planted,
            f"after {seen.fired:.0f} s",
            fault.remedy,
            f"after {seen.ended:.0f} s",
            ", ".join(named(one) for one in sorted(seen.beside)) or "none",
        )
        for fault, seen in ((one, _seen[one.name]) for one in faults)
    ]
    heads = ("alert", "planted fault", "seen firing", "remedy", "ended", "beside it")
    return _table(heads, rows)


def panels_table(faults: Sequence[Fault]) -> str:
    """Return the table of faults and the panels that changed."""
    rows = []
    for fault in faults:
        seen, shows = _seen[fault.name], required(fault)
        others = sorted(seen.changes.keys() - {*shows, *OF_LOAD, *seen.empty})
        if seen.empty:
            others.append(f"without data: {len(seen.empty)} panels")
        rows.append(
            (
                ", ".join(map(named, fault.alerts)),
                "; ".join(_words(title, seen.changes[title]) for title in shows),
                "; ".join(others) or "none",
            )
        )
    return _table(
        ("alert", "its panel: before → in the fault", "other panels that changed"), rows
    )


def _words(title: str, changes: Sequence[Change]) -> str:
    """Return a panel, and of its series those that changed most."""
    (panel,) = (one for one in PANELS if one.title == title)
    each = [
        f"{one.series} {panel.words(one.before)} → {panel.words(one.after)}".strip()
        for one in changes[:MOST]
    ]
    more = f" and {len(changes) - MOST} more" if len(changes) > MOST else ""
    return f"{title}: {', '.join(each)}{more}"


def named(alert: str) -> str:
    """Return an alert's name in Markdown."""
    return " of ".join(f"`{one}`" for one in alert.split(" of "))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("| --- ", "|---") for line in lines)
