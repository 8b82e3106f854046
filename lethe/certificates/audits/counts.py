"""Audits according to the log: which were started, how each ended, which report is the newest.

Each start is logged before the audit's first pair runs, and names the audit by a digest, as its
end does. Table rows can be changed, the log cannot: any reader of the log gets the same count.
A certificate states that count up to a stated log size.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from lethe import canonical
from lethe.log.entries import Leaf

STARTED, REPORTED = "audit.started", "audit.reported"
FAILED, STOPPED = "audit.failed", "audit.stopped"
ENDS = {REPORTED: "reported", FAILED: "failed", STOPPED: "stopped"}  # events and states
RUNNING = "running"
# Parameters of a certificate's method: the counts, and the number of the cited report.
AUDIT, COUNT, DONE = "audit", "audit.started", "audit.reported"
NUMBER, SIZE, MISSING = "audit.number", "audit.log-size", "audit.missing"


@dataclass(frozen=True, slots=True)
class Logged:
    """An audit according to the log; all digests are hex SHA-256.

    digest: `audit_digest`; index, day: of the start entry; method: `method_digest`; config: of
    the configuration. state: running, reported, failed or stopped. end: index of the entry that
    ended it; report, code: from that entry, of the report and of the training and unlearning
    code.
    """

    digest: str
    index: int
    day: date | None
    method: str
    config: str
    state: str = RUNNING
    end: int | None = None
    report: str = ""
    code: str = ""


def audit_digest(audit_id: str, started_at: datetime) -> str:
    """Return the audit's name in the log: hex SHA-256 of RFC 8785 {"audit", "startedAt"}.

    Both are in the signed report, the time to the second in UTC (RFC 3339 with Z).
    """
    at = started_at.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    return hashlib.sha256(canonical.encode({"audit": audit_id, "startedAt": at})).hexdigest()


def method_digest(method: str) -> str:
    """Return the method's name in `audit.started`: hex SHA-256 of the id."""
    return hashlib.sha256(method.encode()).hexdigest()


def logged_audits(
    events: Iterable[tuple[int, Leaf]], size: int | None = None
) -> dict[str, Logged]:
    """Return a model's audits by digest, in the order of their starts.

    events: (index, leaf) of the model's entries in log order. Entries from `size` on and
    repeated starts or ends of one audit are ignored.
    """
    found: dict[str, Logged] = {}
    for index, leaf in events:
        if size is not None and index >= size:
            break
        digest = leaf.digests.get("audit", "")
        if leaf.event == STARTED:
            method, config = leaf.digests.get("method", ""), leaf.digests.get("config", "")
            found.setdefault(digest, Logged(digest, index, leaf.day, method, config))
        elif leaf.event in ENDS and digest in found and found[digest].end is None:
            found[digest] = replace(
                found[digest],
                state=ENDS[leaf.event],
                end=index,
                report=leaf.digests.get("report", ""),
                code=leaf.digests.get("code", ""),
            )
    return found


@dataclass(frozen=True, slots=True)
class Counts:
    """Audits of one method among the first `size` entries, in the order of their starts."""

    size: int
    audits: Sequence[Logged]

    @property
    def reports(self) -> Mapping[str, int]:
        """The number of each report's audit, from 1 by start, by the report's digest."""
        numbered = enumerate(self.audits, 1)
        return {one.report: number for number, one in numbered if one.state == "reported"}

    def newest(self, code: str) -> Logged | None:
        """Return the newest reported audit of the code with this digest, if there is one."""
        own = [one for one in self.audits if one.state == "reported" and one.code == code]
        return max(own, key=lambda one: one.end or 0, default=None)

    def parameters(self, cited: str | None) -> dict[str, str]:
        """Return the counts as a certificate states them. cited: a report's digest."""
        if not self.audits:
            return {}
        numbers = self.reports
        done = sum(one.state == "reported" for one in self.audits)
        found = {COUNT: str(len(self.audits)), DONE: str(done), SIZE: str(self.size)}
        return found if cited is None else {**found, NUMBER: str(numbers[cited])}


def count(events: Iterable[tuple[int, Leaf]], method: str, size: int) -> Counts:
    """Count the audits of a method.

    events: (index, leaf) of the model's entries, in log order.
    """
    own = method_digest(method)
    return Counts(
        size, [one for one in logged_audits(events, size).values() if one.method == own]
    )
