"""fsck of retention: exactly the logged items are listed and destroyed, or held.

Anyone with write access to the database could empty a request and claim that its retention
ended. So the lists are sealed, and each entry has the digest of its list.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from sqlmodel import Session, col, select

from app.reconcile.findings import FsckReport
from app.reconcile.holds import compare
from app.reconcile.retention import ended_refs, items_digest, listed, stored_entries
from lethe.log.entries import HOLD_EVENT, EntryError, Leaf, parse_leaf
from models import (
    Artifact,
    Case,
    ErasureRequest,
    LegalHold,
    LogEntry,
    RetentionRemoval,
    Verification,
)
from models.database.session import chunks

CHECK = "retention"
UNLISTED = (
    "the log counts what the end of retention destroyed, and retention_removals lists "
    "something else: restore the table from a backup"
)
KEPT = (
    "the log says that something was destroyed at the end of its retention, and the database "
    "still has it: run `lethe retention run`"
)
FAKED = (
    "scope and openings of a request are gone, and no entry says that its retention ended: "
    "restore its rows from a backup, and find out who writes to the database"
)
UNLOGGED = "retention_removals lists something under an entry that does not count it"


def check_retention(
    session: Session, report: FsckReport, first: int, ended: Mapping[str, int]
) -> None:
    """Compare lists and rows with the entries from log index `first` on.

    ended: requests without a key, by ref, each with the log index of one of its events.
    """
    entries = stored_entries(session, first)
    for index, leaf in entries:
        rows = listed(session, index)
        counts = Counter(row.kind for row in rows)
        same = {kind: one.count for kind, one in leaf.ended.items()} == dict(counts)
        if not same or items_digest(rows) != leaf.digests["items"]:
            report.add(CHECK, UNLISTED, index)
        elif any(_kept(session, rows)):
            report.add(CHECK, KEPT, index)
    known = {index for index, _ in entries}
    query = select(RetentionRemoval.log_index).distinct()
    of = col(RetentionRemoval.log_index)
    report.add_all(
        CHECK,
        UNLOGGED,
        sorted(
            index
            for index in session.exec(query.where(of.is_not(None), of >= first))
            if index is not None and index not in known
        ),
    )
    scopes = ended_refs(session, "scope") if ended else set()
    report.add_all(CHECK, FAKED, sorted(i for ref, i in ended.items() if ref not in scopes))


def _kept(session: Session, rows: Iterable[RetentionRemoval]) -> Iterable[bool]:
    """Yield for each kind whether any of its items still exists.

    `check_registrations` compares the bindings of keys.
    """
    refs: dict[str, list[str]] = {}
    for row in rows:
        refs.setdefault(row.kind, []).append(row.ref)
    still = {
        "scope": select(ErasureRequest.id).where(col(ErasureRequest.forgotten_at).is_(None)),
        "evidence": select(ErasureRequest.id)
        .join(Verification, col(Verification.request_id) == col(ErasureRequest.id))
        .join(Artifact, col(Artifact.id) == col(Verification.evidence_id))
        .where(col(Artifact.wrapped_key).is_not(None)),
        "contact": select(Case.ref).where(col(Case.contact).is_not(None)),
        "case": select(Case.ref).where(col(Case.key).is_not(None)),
    }
    for kind, query in still.items():
        place = col(ErasureRequest.ref) if kind in ("scope", "evidence") else col(Case.ref)
        for chunk in chunks(refs.get(kind, [])):
            yield session.exec(query.where(place.in_(chunk)).limit(1)).first() is not None


def check_holds(session: Session, report: FsckReport) -> None:
    """Compare the table with the stored entries, which `check_tree` has verified."""
    query = select(LogEntry.index, LogEntry.leaf).where(LogEntry.kind == HOLD_EVENT)
    logged: dict[str, list[tuple[int, Leaf]]] = {}
    for index, data in session.exec(query.order_by(col(LogEntry.index))):
        try:
            leaf = parse_leaf(data)
        except EntryError:  # reported by `check_tree`
            continue
        logged.setdefault(str(leaf.ref), []).append((index, leaf))
    rows = {row.id: row for row in session.exec(select(LegalHold))}
    for index, problem in compare(rows, logged)[1]:
        report.add("hold", problem, index)
