"""fsck of the end of retention: exactly the logged items are listed and destroyed.

Anyone with write access to the database could empty a request and claim that its retention
ended. So the lists are sealed, and each entry has the digest of its list.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta

from sqlmodel import Session, col, func, select

from app.reconcile.findings import FsckReport
from app.reconcile.holds import RELEASED, Held
from app.reconcile.logged_requests import ENDS
from app.reconcile.retention import (
    cut_offs,
    ended_refs,
    has_evidence,
    items_digest,
    listed,
    stored_entries,
)
from app.reconcile.undecided import undecided
from app.settings import Settings
from lethe.log.entries import ERASURE_EVENT, HOLD_EVENT
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
from models.database.types import clock

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
EARLY = (
    "something was destroyed as if its retention had ended, and by the log it had not: restore "
    "its rows from a backup, and find out who writes to the database"
)
OVERDUE = (
    "something is kept that should have been destroyed days ago: run `lethe retention run`; if "
    "that leaves it, the tables differ from the log"
)
LATE = timedelta(days=2)  # the schedule runs daily
ANSWERS = tuple(event.removeprefix("request.") for event in ENDS)  # states; not `failed`
_PLACES = {"contact": col(Case.ref), "case": col(Case.ref), "hold": col(LegalHold.id)}
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
        if _early(session, rows, {kind: one.before for kind, one in leaf.ended.items()}):
            report.add(CHECK, EARLY, index)
    # An interrupted run, which the next one counts.
    pending = select(RetentionRemoval).where(col(RetentionRemoval.log_index).is_(None))
    for row in session.exec(pending):
        if _early(session, [row], {row.kind: row.before.date()}):
            report.add(CHECK, EARLY)
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
        "undecided": select(ErasureRequest.id).where(col(ErasureRequest.state).not_in(ANSWERS)),
        "hold": select(LegalHold.id),
    }
    for kind, query in still.items():
        place = _PLACES.get(kind, col(ErasureRequest.ref))
        for chunk in chunks(refs.get(kind, [])):
            yield session.exec(query.where(place.in_(chunk)).limit(1)).first() is not None


def _early(
    session: Session, rows: Iterable[RetentionRemoval], before: Mapping[str, date]
) -> bool:
    """Return whether an item of a list was not due by the day `before` of its kind.

    Nothing opens the entries of a request whose scope was destroyed, but each has its day. The
    dates of a case are compared with its entries by `check_cases`, until its key is destroyed.
    """
    refs: dict[str, list[str]] = {}
    for row in rows:
        refs.setdefault(row.kind, []).append(row.ref)
    for kind, event, names in (
        ("evidence", ERASURE_EVENT, ENDS),
        ("scope", ERASURE_EVENT, ENDS),
        ("hold", HOLD_EVENT, (RELEASED,)),
    ):
        limit = before[kind].isoformat() if kind in before else ""
        for chunk in chunks(refs.get(kind, [])):
            ends = _days(session, event, names, chunk)
            if any(ref not in ends or ends[ref] > limit for ref in chunk):
                return True
    for chunk in chunks(refs.get("undecided", [])):
        if _days(session, ERASURE_EVENT, ("request.refused",), chunk).keys() < set(chunk):
            return True
    for kind, at in (
        ("undecided", col(ErasureRequest.due_at)),
        ("contact", col(Case.due_at)),
        ("case", col(Case.received_at)),
    ):
        place = _PLACES.get(kind, col(ErasureRequest.ref))
        for chunk in chunks(refs.get(kind, [])):
            for found in session.exec(select(at).where(place.in_(chunk))):
                if kind not in before or found.date() > before[kind]:
                    return True
    return False


def _days(
    session: Session, kind: str, events: Sequence[str], refs: Sequence[str]
) -> dict[str, str]:
    """Return by ref the last day on which one of these events was logged."""
    query = select(LogEntry.ref, func.max(col(LogEntry.day))).where(
        LogEntry.kind == kind, col(LogEntry.event).in_(events), col(LogEntry.ref).in_(refs)
    )
    days = session.exec(query.group_by(col(LogEntry.ref)))
    return {str(ref): str(day) for ref, day in days}


def check_overdue(session: Session, report: FsckReport, settings: Settings, held: Held) -> None:
    """Report what is kept though its retention ended some days ago by the log.

    held: what the holds in force protect.
    """
    ends = {kind: end - LATE for kind, end in cut_offs(settings, clock(session)).items()}
    closed = (
        select(LogEntry.index, LogEntry.day, ErasureRequest.event_key)
        .join(ErasureRequest, col(ErasureRequest.ref) == col(LogEntry.ref))
        .where(LogEntry.kind == ERASURE_EVENT, col(LogEntry.event).in_(ENDS), ~held.request())
        .order_by(col(LogEntry.index))
    )
    day = ends["scope"].date().isoformat()
    late = [i for i, _, key in session.exec(closed.where(col(LogEntry.day) < day)) if key]
    day = ends["evidence"].date().isoformat()
    query = closed.where(col(LogEntry.day) < day, has_evidence())
    report.add_all(CHECK, OVERDUE, sorted({*late, *(i for i, _, _ in session.exec(query))}))
    for request in session.exec(undecided(ends["undecided"], held)):
        if request.event_key:
            report.add(CHECK, OVERDUE, request.log_index)
    released = (
        select(LogEntry.index)
        .join(LegalHold, col(LegalHold.id) == col(LogEntry.ref))
        .where(LogEntry.kind == HOLD_EVENT, LogEntry.event == RELEASED)
        .where(col(LogEntry.day) < ends["hold"].date().isoformat())
    )
    report.add_all(CHECK, OVERDUE, sorted(session.exec(released)))
    kept = select(ErasureRequest.id).where(
        ErasureRequest.case_ref == Case.ref, col(ErasureRequest.forgotten_at).is_(None)
    )
    # A request that ended lately, or not at all, needs the address for its answer.
    lately = (
        select(LogEntry.index)
        .join(ErasureRequest, col(ErasureRequest.ref) == col(LogEntry.ref))
        .where(
            ErasureRequest.case_ref == Case.ref,
            LogEntry.kind == ERASURE_EVENT,
            col(LogEntry.event).in_(ENDS),
            col(LogEntry.day) >= ends["contact"].date().isoformat(),
        )
    )
    going_on = select(ErasureRequest.id).where(
        ErasureRequest.case_ref == Case.ref,
        col(ErasureRequest.state).not_in(ANSWERS)
        | (col(ErasureRequest.due_at) >= ends["contact"]),
    )
    contact = (
        col(Case.contact).is_not(None)
        & (col(Case.due_at) < ends["contact"])
        & ~going_on.exists()
        & ~lately.exists()
    )
    key = col(Case.key).is_not(None) & (col(Case.received_at) < ends["case"]) & ~kept.exists()
    for case in session.exec(select(Case).where(contact | key, ~held.case())):
        report.add(CHECK, OVERDUE, case.parts[0]["log_index"] if case.parts else None)
