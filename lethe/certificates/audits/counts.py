"""What the log says of audits: which began, how each ended, and which report is the newest.

Each start is in the log before its first pair runs, and names the audit by a digest, as its
end does. Rows of tables can be changed; whoever reads the log counts the same, and a
certificate says that count, up to the size of the log that it names.
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
# Parameters of a certificate's method: those that count, and the one that cites.
AUDIT, COUNT, DONE = "audit", "audit.started", "audit.reported"
NUMBER, SIZE, MISSING = "audit.number", "audit.log-size", "audit.missing"


@dataclass(frozen=True, slots=True)
class Logged:
    """An audit as the log has it; all digests are hex SHA-256.

    digest: `audit_digest`; index and day: of its start; method: `method_digest`; config: of
    its configuration. state: running, reported, failed or stopped. end: the index of the
    entry that ended it; report and code: what that names of a report, and of the code that
    trained and unlearned.
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
    """Return how the log names an audit: hex SHA-256 of RFC 8785 {"audit", "startedAt"}.

    Both are in the signed report, the time to the second in UTC (RFC 3339 with Z).
    """
    at = started_at.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    return hashlib.sha256(canonical.encode({"audit": audit_id, "startedAt": at})).hexdigest()


def method_digest(method: str) -> str:
    """Return how the start of an audit names its method: hex SHA-256 of the id."""
    return hashlib.sha256(method.encode()).hexdigest()


def logged_audits(
    events: Iterable[tuple[int, Leaf]], size: int | None = None
) -> dict[str, Logged]:
    """Return a model's audits by their digest, in the order of their starts.

    events: (index, leaf) of its entries in their order; those from `size` on do not count,
    nor does a second start or a second end of one audit.
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
        """The number of the start, from 1, of each report by its digest."""
        numbered = enumerate(self.audits, 1)
        return {one.report: number for number, one in numbered if one.state == "reported"}

    def newest(self, code: str) -> Logged | None:
        """Return the audit that was reported last by code of this digest, None without any."""
        own = [one for one in self.audits if one.state == "reported" and one.code == code]
        return max(own, key=lambda one: one.end or 0, default=None)

    def parameters(self, cited: str | None) -> dict[str, str]:
        """Return what a certificate says of them, citing this report of theirs or none."""
        if not self.audits:
            return {}
        numbers = self.reports
        done = sum(one.state == "reported" for one in self.audits)
        told = {COUNT: str(len(self.audits)), DONE: str(done), SIZE: str(self.size)}
        return told if cited is None else {**told, NUMBER: str(numbers[cited])}


def count(events: Iterable[tuple[int, Leaf]], method: str, size: int) -> Counts:
    """Count the audits of a method by (index, leaf) of its model's entries, in their order."""
    own = method_digest(method)
    return Counts(
        size, [one for one in logged_audits(events, size).values() if one.method == own]
    )
