"""The report of `fsck`."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlmodel import Session, col, select

from lethe.log.entries import EntryError, Leaf, parse_leaf
from lethe.log.tree import Peaks
from models import Artifact

NOT_OPENED = "not checked: the master key is not here"
NOT_CHECKED = "not checked: entries.key is not here"
UNREAD = (
    "not read again: these entries, their nodes, checkpoints, openings, approvals and "
    "certificates, the evidence of erased records that these name, versions and records of "
    "models without a new event, and files stored before; --full reads everything"
)
MOST = 20  # listed findings per check; one wrong leaf makes many wrong nodes


@dataclass(frozen=True, slots=True)
class Finding:
    """An inconsistency. `check` is a stable name; `detail` is text for people."""

    check: str
    detail: str
    log_index: int | None = None


@dataclass(slots=True)
class FsckReport:
    """The findings among `size` entries and `checkpoints` signed notes.

    macs: whether the entries' MACs were checked, which takes entries.key. files: whether
    requests, certificates, models and stored files were checked, which takes the master key.
    ended: the number of requests whose retention has ended, with nothing left to compare.
    before: the number of entries verified by an earlier call and not read again. edge: the
    computed tree at the guard's size, and its number of checkpoints.
    """

    size: int = 0
    before: int = 0
    edge: tuple[Peaks, int] | None = None
    checkpoints: int = 0
    macs: bool = False
    files: bool = False
    ended: int = 0
    findings: list[Finding] = field(default_factory=list)
    unlisted: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def add(self, check: str, detail: str, log_index: int | None = None) -> None:
        """Add a finding; beyond the first MOST of each check, findings are only counted."""
        if sum(finding.check == check for finding in self.findings) < MOST:
            self.findings.append(Finding(check, detail, log_index))
        else:
            self.unlisted[check] += 1

    def add_all(self, check: str, detail: str, log_indices: Iterable[int]) -> None:
        """Add the same finding at each of these log indices."""
        for log_index in log_indices:
            self.add(check, detail, log_index)

    def as_json(self) -> dict[str, Any]:
        """Return the report as `lethe log fsck --json` prints it."""
        return {
            "result": "PASS" if self.ok else "FAIL",
            "size": self.size,
            "before": self.before,
            "unread": UNREAD if self.before else "",
            "checkpoints": self.checkpoints,
            "macs": "checked" if self.macs else NOT_CHECKED,
            "files": "checked" if self.files else NOT_OPENED,
            "ended": self.ended,
            "findings": [
                {"check": f.check, "detail": f.detail, "log_index": f.log_index}
                for f in self.findings
            ],
            "unlisted": dict(self.unlisted),
        }


def valid_leaves(rows: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Leaf]]:
    """Yield (index, leaf) of stored entries; `check_tree` reports the invalid ones."""
    for index, data in rows:
        with suppress(EntryError):
            yield index, parse_leaf(data)


def is_stored(session: Session, digest: str, kind: str) -> bool:
    """Return whether a file of this kind and digest (hex SHA-256) can still be opened."""
    query = select(Artifact.id).where(
        Artifact.digest == digest, Artifact.kind == kind, col(Artifact.wrapped_key).is_not(None)
    )
    return session.exec(query).first() is not None
