"""Requests of a period, counted from log entries, with proofs that no entry is left out.

Entries have days and pseudonyms, so the counts need no table. The log's key is enough to check
the range with three proofs; a reader of the log can recount.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

from lethe import canonical
from lethe.errors import LetheError
from lethe.log.entries import ERASURE_EVENT, Leaf, parse_leaf
from lethe.log.log_keys import LogKeys, log_keys
from lethe.log.note import NoteVerifier
from lethe.log.ranges import RangeProof, check_trees, range_members, read_range
from lethe.log.tree import leaf_hashes, root_of

RECEIVED, CERTIFIED = "request.received", "request.certified"
# Each figure counts one event; the first four events end a request.
COUNTED: Mapping[str, str] = {
    "certified": CERTIFIED,
    "failed": "request.failed",
    "withdrawn": "request.withdrawn",
    "refused": "request.refused",
    "received": RECEIVED,
    "extended": "request.extended",
    "paused": "request.paused",
}
ENDS = frozenset(list(COUNTED.values())[:4])
MAX_REPORT = 1 << 20  # bytes
KIND = "erasure-period-report"
OPEN = "open"  # the figure of requests that had not ended
OWN = "period"  # name of the range's consistency proof in a report


class PeriodError(LetheError):
    """A report of a period whose proofs or figures do not verify."""

    slug, title, status = "period-report-invalid", "The report of the period does not hold", 400


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of a period. start, end: its entries are [start, end) of the log.

    figures: numbers by name. days: from receipt to certificate, ascending, of each request
    certified in the period.
    """

    start: int
    end: int
    figures: Mapping[str, int]
    days: Sequence[int]


def count(leaves: Sequence[Leaf], first: date, last: date) -> Counted:
    """Count the requests of the days from `first` to `last`, both included.

    leaves: all entries of a log. The period's range is from the first entry of these days to
    the last, whatever the days of the entries between them.
    """
    inside = [
        index
        for index, leaf in enumerate(leaves)
        if leaf.day is not None and first <= leaf.day <= last
    ]
    if inside:
        start, end = inside[0], inside[-1] + 1
        # A certificate has no day; the following event of the request has one.
        while start and leaves[start - 1].day is None:
            start -= 1
    else:
        earlier = (at for at, leaf in enumerate(leaves, 1) if leaf.day and leaf.day < first)
        start = end = max(earlier, default=0)
    figures = dict.fromkeys((*COUNTED, OPEN), 0)
    names = {event: name for name, event in COUNTED.items()}
    received: dict[str, date] = {}
    days: list[int] = []
    waiting: set[str] = set()
    for leaf in leaves[:end]:
        if leaf.kind != ERASURE_EVENT or leaf.ref is None or leaf.day is None:
            continue
        if leaf.event == RECEIVED:
            received.setdefault(leaf.ref, leaf.day)
            waiting.add(leaf.ref)
        elif leaf.event in ENDS:
            waiting.discard(leaf.ref)
        if not first <= leaf.day <= last:
            continue
        if leaf.event in names:
            figures[names[leaf.event]] += 1
        if leaf.event == CERTIFIED and leaf.ref in received:
            days.append((leaf.day - received[leaf.ref]).days)
    figures[OPEN] = len(waiting)
    return Counted(start, end, figures, sorted(days))


def build(
    counted: Counted,
    first: date,
    last: date,
    *,
    methods: Iterable[Mapping[str, Any]],
    checks: Iterable[Mapping[str, Any]],
    log: Mapping[str, Any],
) -> bytes:
    """Return the report (RFC 8785).

    methods, checks: rows counted from certificates. log: the result of `log_part`.
    """
    days = counted.days
    return canonical.encode(
        {
            "apiVersion": "1",
            "kind": KIND,
            "first": first.isoformat(),
            "last": last.isoformat(),
            "figures": dict(counted.figures),
            "days": {"shortest": days[0], "median": str(median(days)), "longest": days[-1]}
            if days
            else None,
            "methods": [dict(one) for one in methods],
            "checks": [dict(one) for one in checks],
            "log": dict(log),
        }
    )


def log_part(origin: str, proof: RangeProof, note: str) -> dict[str, Any]:
    """Return the proofs: the trees before and at the end of the period, and the head."""
    return {"origin": origin, **range_members(proof, OWN), "checkpoint": note}


def check(
    data: bytes, verifier: NoteVerifier | LogKeys, entries: Sequence[bytes] | None = None
) -> Any:
    """Return a report (JSON value) after checking its range against the log of `verifier`.

    entries: all entries of the log, verified by the caller; if given, the figures are
    recounted. Raises PeriodError or LetheError; the message names the proof or figure that does
    not verify.
    """
    if len(data) > MAX_REPORT:
        raise PeriodError(f"a report has at most {MAX_REPORT} bytes")
    report = canonical.decode(data)
    try:
        if (report["apiVersion"], report["kind"]) != ("1", KIND):
            raise PeriodError(
                "this is not a report of a period: give what `lethe report period` wrote"
            )
        log = report["log"]
        proof = read_range(log, OWN)
        note, origin = log["checkpoint"], log["origin"]
        days = date.fromisoformat(report["first"]), date.fromisoformat(report["last"])
        named = {name: type(n) is int and n >= 0 for name, n in report["figures"].items()}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise PeriodError("the report lacks a member, or one is misspelled") from None
    if not named.keys() <= {*COUNTED, OPEN} or not all(named.values()):
        raise PeriodError("the report has an unknown figure, or one that is no whole number")
    if not isinstance(note, str):
        raise PeriodError("the report has no checkpoint")
    head, _ = log_keys(verifier).open(note)
    if head.origin != origin:
        raise PeriodError("the report names another log than its checkpoint")
    check_trees(proof, head.size, head.root)
    if entries is not None:
        _check_figures(report, days, proof, entries)
    return report


def _check_figures(
    report: Any, days: tuple[date, date], proof: RangeProof, entries: Sequence[bytes]
) -> None:
    hashes = leaf_hashes(entries)
    for size, root in ((proof.start, proof.start_root), (proof.end, proof.end_root)):
        if size > len(hashes) or root_of(hashes[:size]) != root:
            raise PeriodError("the log's entries are not those of the report's trees")
    counted = count([parse_leaf(entry) for entry in entries], *days)
    if (counted.start, counted.end) != (proof.start, proof.end):
        raise PeriodError("the period has other entries of the log than the report says")
    again = canonical.decode(build(counted, *days, methods=(), checks=(), log={}))
    if any(report.get(name) != again[name] for name in ("figures", "days")):
        raise PeriodError("the figures are not those that the log's entries give")


def rows(report: Any) -> list[tuple[str, str, str, str]]:
    """Return the report's numbers as rows: section, name, detail, value."""
    found = [("requests", name, "", str(n)) for name, n in report["figures"].items()]
    found += [("days", name, "", str(n)) for name, n in (report["days"] or {}).items()]
    for one in report["methods"]:
        for name in ("certificates", "records"):
            found.append(
                ("methods", one["method"], f"{one['guarantee']}: {name}", str(one[name]))
            )
    for one in report["checks"]:
        for name in ("passed", "failed"):
            found.append(("checks", one["check"], name, str(one[name])))
    log = report["log"]
    for name in ("start", "end"):
        found.append(("log", name, log[name]["root"], str(log[name]["size"])))
    return found


def as_csv(report: Any) -> str:
    """Return the report's numbers as CSV (RFC 4180), without its proofs."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(("section", "name", "detail", "value"))
    writer.writerow(("period", report["first"], report["last"], ""))
    writer.writerows(rows(report))
    return written.getvalue()
