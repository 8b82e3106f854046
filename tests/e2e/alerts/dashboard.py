"""What deploy/monitoring/dashboard.json draws: its panels' series now, and what a fault changes."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.e2e.alerts.fault import Fault, base
from tests.e2e.alerts.prometheus import MONITORING, Labels, Prometheus, shortened

VISIBLE = 0.05  # of the larger value; on a panel 8 rows high that is about 10 pixels

# The panel that must change visibly on a fault, by the alert that is about it.
PANEL_OF = {
    "LetheAway": "Scrapes",
    "LetheProcessAway": "Scrapes",
    "LethePartAway": "Scrapes",
    "LetheQuotaReached": "Open requests of one key, and refusals by quota",
    "LetheNotReady": "Parts that are not ready",
    "LetheForeignMessages": "Errors of stages in 15 minutes",
    "LetheStageErrors": "Errors of stages in 15 minutes",
    "LetheQueueStands": "Age of the oldest job",
    "LetheScheduleAway": "Schedule",
    "LetheRequestDueSoon": "Due within 10 days",
    "LetheRequestOverdue": "Overdue",
    "LetheDecisionNeeded": "Need a decision",
    "LetheRequestFailed": "Open requests by state",
    "LetheNoticesFail": "Notices of the last 30 days",
    "LetheReceiptsMissing": "Receipts missing",
    "LetheLogLockSlow": "Wait for the log's lock",
    "LetheFollowerLate": "Followers that are late",
    "LetheDiskLow": "Free space",
    "LetheDiskFull": "Free space",
    "LetheWitnessesMissing": "Witnesses",
    "LetheLogForked": "Witnesses that forked",
}
# These change with each request, whether a fault is planted or not, and may be empty without.
OF_LOAD = (
    "Accepted, certified and steps a minute",
    "Seconds of a stage, median and 95 of 100",
    "Calls a second, by operation",
    "Seconds of a call, 99 of 100",
    "Refused calls a minute, by problem",
    "Entries of the log",
    "Wait for the log's lock",
)
# Without a follower there is nothing to draw.
EMPTY = {"Followers: how far behind"}

Series = Mapping[str, float]
Drawn = Mapping[str, Series]  # by the panel's title, by the series' legend


@dataclass(frozen=True)
class Target:
    """A query of a panel, and the legend of its series."""

    query: str
    legend: str

    def name(self, labels: Labels, places: Mapping[str, str]) -> str:
        """Return a series' legend, with a word for the address of each process."""
        return re.sub(
            r"\{\{(\w+)\}\}",
            lambda found: places.get(labels.get(found[1], ""), labels.get(found[1], "")),
            self.legend,
        )


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    targets: tuple[Target, ...]

    def words(self, value: float | None) -> str:
        """Return a value in the panel's unit."""
        if value is None:
            return "no data"
        if self.unit == "bool_on_off":
            return "on" if value else "off"
        if self.unit == "bytes":
            return f"{value / 2**30:.1f} GiB"
        number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        return number + (" s" if self.unit == "s" else "")


@dataclass(frozen=True)
class Change:
    """A series before a fault and in it; None: it is not drawn."""

    series: str
    before: float | None
    after: float | None

    @property
    def size(self) -> float:
        """Return how much it changed, of the larger value; 1 if it came or went."""
        if self.before is None or self.after is None:
            return 1.0
        larger = max(abs(self.before), abs(self.after))
        return abs(self.after - self.before) / larger if larger else 0.0


def _panels() -> tuple[Panel, ...]:
    found = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return tuple(
        Panel(
            one["title"],
            one["fieldConfig"]["defaults"]["unit"],
            tuple(Target(each["expr"], each["legendFormat"]) for each in one["targets"]),
        )
        for one in found
    )


PANELS = _panels()
QUERIES = sorted({target.query for panel in PANELS for target in panel.targets})


def answered(prometheus: Prometheus) -> set[str]:
    """Return the queries that return a number now, as they stand in the file."""
    return {query for query in QUERIES if prometheus.values(query)}


def empty(answered: set[str]) -> set[str]:
    """Return the panels none of whose queries returned a number."""
    return {
        panel.title
        for panel in PANELS
        if not answered & {target.query for target in panel.targets}
    }


def drawn(prometheus: Prometheus, places: Mapping[str, str]) -> Drawn:
    """Return what the panels show now, of ranges shortened as those of the rules are."""
    return {
        panel.title: {
            target.name(labels, places): value
            for target in panel.targets
            for labels, value in prometheus.values(shortened(target.query))
        }
        for panel in PANELS
    }


def changes(before: Sequence[Drawn], after: Sequence[Drawn]) -> dict[str, list[Change]]:
    """Return the visible changes by panel: between what each look saw before and after.

    A series changed if none of the later values is among the earlier ones, by VISIBLE.
    """
    found: dict[str, list[Change]] = {}
    for panel in PANELS:
        names = {name for look in (*before, *after) for name in look[panel.title]}
        for name in sorted(names):
            old, new = (
                [look[panel.title].get(name) for look in side] for side in (before, after)
            )
            if (one := _change(name, old, new)) is not None:
                found.setdefault(panel.title, []).append(one)
    for each in found.values():
        each.sort(key=lambda one: (None in (one.before, one.after), -one.size))
    return found


def _change(
    name: str, before: Sequence[float | None], after: Sequence[float | None]
) -> Change | None:
    """Return how a series changed, None if it did not or if that is uncertain.

    A look may miss a value, because a frozen part makes a scrape late: it says nothing then.
    """
    old, new = ([one for one in side if one is not None] for side in (before, after))
    if not old or not new:
        is_whole = len(new) == len(after) or len(old) == len(before)
        return Change(name, before[-1], after[-1]) if is_whole else None
    change = Change(name, old[-1], new[-1])
    apart = max(old) < min(new) or max(new) < min(old)
    return change if apart and change.size >= VISIBLE else None


def required(fault: Fault) -> list[str]:
    """Return the panels that must show a fault."""
    return list(dict.fromkeys(PANEL_OF[base(alert)] for alert in fault.alerts))
