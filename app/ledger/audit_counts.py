"""How many audits of a method the log has, so that nobody runs ten and cites the best.

Each start is in the log before its first pair runs. Whoever reads the log counts them, and a
certificate says the same count, up to the size of the log that it names.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.ledger.entries import Leaf

STARTED, REPORTED = "audit.started", "audit.reported"
# Parameters of a certificate's method: those that count, and the one that cites.
AUDIT, COUNT, DONE = "audit", "audit.started", "audit.reported"
NUMBER, SIZE = "audit.number", "audit.log-size"


@dataclass(frozen=True, slots=True)
class Report:
    """A report in the log. number: of its start, from 1; config: what that committed to."""

    number: int
    config: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Audits of one method among the first `size` entries; reports by their digest.

    named: index of the first start that names its method, as all do since they are counted.
    """

    size: int
    started: int
    named: int | None
    reports: Mapping[str, Report]

    def parameters(self, cited: str | None) -> dict[str, str]:
        """Return what a certificate says of them, citing this report of theirs or none."""
        if not self.started:
            return {}
        done = len({report.number for report in self.reports.values()})
        told = {COUNT: str(self.started), DONE: str(done), SIZE: str(self.size)}
        return told if cited is None else {**told, NUMBER: str(self.reports[cited].number)}


def method_digest(method: str) -> str:
    """Return how the start of an audit names its method: hex SHA-256 of the id."""
    return hashlib.sha256(method.encode()).hexdigest()


def count(events: Iterable[tuple[int, Leaf]], method: str, size: int) -> Counts:
    """Count the audits of a method by (index, leaf) of its model's entries, in their order.

    A start from before they named their method counts as one of each: too many audits are
    a question, too few an answer to none.
    """
    own, starts = method_digest(method), list[Leaf]()
    reports: dict[str, Report] = {}
    named: int | None = None
    for index, leaf in events:
        if index >= size:
            break
        config = leaf.digests.get("config", "")
        if leaf.event == STARTED and leaf.digests.get("method", own) == own:
            starts.append(leaf)
            named = index if named is None and "method" in leaf.digests else named
        elif leaf.event == REPORTED:
            for number, start in reversed(list(enumerate(starts, 1))):
                if start.digests.get("config") == config:  # the last: one runs at a time
                    reports[leaf.digests.get("report", "")] = Report(number, config)
                    break
    return Counts(size, len(starts), named, reports)
