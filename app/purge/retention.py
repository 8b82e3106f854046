"""The end of retention: destroys due items, then logs the numbers.

    transaction 1   keys destroyed and rows emptied, each with a row of     durable
                    `retention_removals` that no entry counts yet
    files           unlinked, and the database scrubbed
    transaction 2   one entry that counts those rows                        signed

Transaction 1 is repeated until nothing is due. A crash between two of these lines leaves
nothing half destroyed and no false entry: the next run continues, and its entry counts what the
interrupted run destroyed. A request's row without a scope, its certificate and its log entries
remain: they record that there was a request, when, under which law, and how it ended.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from sqlalchemy import delete
from sqlmodel import Session, col, func, select

from app.ledger.journal import record_retention_event
from app.ledger.key_rows import key_rows
from app.ledger.transaction import Transaction
from app.purge import due
from app.reconcile.holds import NOTHING, Held, held
from app.reconcile.retention import items_digest
from app.service.access.keys import DESTROYED
from app.service.context import Services
from app.service.intake.following import destroy_proofs
from app.steps import reached
from app.vault.scrub import scrub
from lethe.catalogue import RETAINED
from lethe.certificates.evidence import SCORES
from lethe.log.entries import Ended
from models import (
    Artifact,
    Callback,
    Case,
    ErasureRequest,
    RequesterKey,
    RequestEvent,
    RetentionRemoval,
    Verification,
)
from models.database.clock import clock

AT_ONCE = 100  # items of each kind in one transaction; bounds how long others wait
ENDED = "retention.ended"


@dataclass(slots=True)
class RetentionRun:
    """Numbers of items that a run destroyed, or would destroy, by kind.

    held: due items under a legal hold. before: the cut-off dates. log_index: of the run's log
    entry, which may also count items of an interrupted run; None without an entry.
    """

    dry_run: bool
    removed: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    before: dict[str, date] = field(default_factory=dict)
    log_index: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the result as `lethe retention run --json` prints it."""
        return {
            "dry_run": self.dry_run,
            "removed": {kind: self.removed[kind] for kind in RETAINED},
            "held": {kind: self.held[kind] for kind in RETAINED},
            "before": {kind: day.isoformat() for kind, day in self.before.items()},
            "log_index": self.log_index,
        }


def run(services: Services) -> RetentionRun:
    """Destroy all due items. Idempotent.

    Raises:
        HoldsChangedError: Table and log disagree on legal holds; nothing more was destroyed.
        LetheError: The log may not be signed; the transaction destroyed nothing.
    """
    found = RetentionRun(dry_run=False)
    while removed := services.ledger.transact(
        lambda tx: _destroy(services, tx, found), checkpoint=False
    ):
        found.removed.update(removed)
    reached("retention.destroyed")
    services.artifacts.unlink_shredded(services.engine)
    scrub(services.engine)  # if a long reader still needs old pages, the sweep repeats it
    reached("retention.unlinked")
    found.log_index = services.ledger.transact(_record)
    with services.reading() as session:  # only held items are still due
        found.held = _count(services, session, NOTHING)
    return found


def plan(services: Services) -> RetentionRun:
    """Return what a run would destroy now, without changing anything.

    Raises HoldsChangedError: as `run`.
    """
    found = RetentionRun(dry_run=True)
    with services.reading() as session:
        cut_offs = due.cut_offs(services.settings, clock(session))
        found.before = {kind: before.date() for kind, before in cut_offs.items()}
        found.removed = _count(services, session, held(services.ledger, session))
        found.held = _count(services, session, NOTHING) - found.removed
    return found


def _count(services: Services, session: Session, keeps: Held) -> Counter[str]:
    """Count due items by kind, except those held."""
    found = Counter[str]()
    for kind, before in due.cut_offs(services.settings, clock(session)).items():
        query = due.selected(kind, before, keeps, planned=True)
        if kind == "key":
            found[kind] = len(due.bound(session, query))
        else:
            counted = select(func.count()).select_from(query.subquery())
            found[kind] = session.exec(counted).one()
    return +found


def _destroy(services: Services, tx: Transaction, found: RetentionRun) -> dict[str, int]:
    """Destroy and list up to AT_ONCE items of each kind; return their numbers."""
    session, removed = tx.session, dict[str, int]()
    # The log's lock keeps new holds out: placing one takes the same lock.
    keeps = held(services.ledger, session)
    cut_offs = due.cut_offs(services.settings, tx.now)
    found.before = {kind: before.date() for kind, before in cut_offs.items()}
    for kind, before in cut_offs.items():
        items = _next(session, kind, before, keeps)
        for one in items:
            ref = _DESTROY[kind](services, tx, one)
            session.add(RetentionRemoval(kind=kind, ref=ref, before=before, at=tx.now))
        session.flush()
        if items:
            removed[kind] = len(items)
    return removed


def _next(session: Session, kind: str, before: datetime, keeps: Held) -> Sequence[Any]:
    query = due.selected(kind, before, keeps)
    if kind == "key":
        return due.bound(session, query)[:AT_ONCE]
    return session.exec(query.limit(AT_ONCE)).all()


def _record(tx: Transaction) -> int | None:
    """Append an entry for the destroyed items that no entry counts; return its index."""
    session = tx.session
    query = select(RetentionRemoval).where(col(RetentionRemoval.log_index).is_(None))
    rows = session.exec(query.order_by(col(RetentionRemoval.id))).all()
    if not rows:
        return None
    ended = {
        kind: Ended(
            sum(row.kind == kind for row in rows),
            max(row.before for row in rows if row.kind == kind).date(),
        )
        for kind in RETAINED
        if any(row.kind == kind for row in rows)
    }
    index = record_retention_event(tx, ENDED, ended, items_digest(rows))
    for row in rows:
        row.log_index = index
    session.flush()
    return index


def destroy_evidence(services: Services, tx: Transaction, request: ErasureRequest) -> str:
    """Destroy the evidence and the scores of a request; return its ref."""
    session = tx.session
    found = session.get_one(Verification, request.id)
    services.artifacts.shred(session, found.evidence_id)
    for digest in [
        str(event.payload[SCORES])
        for event in session.exec(
            select(RequestEvent).where(RequestEvent.request_id == request.id)
        ).all()
        if SCORES in event.payload
    ]:
        # Only one file: another request may have the same scores in its own file.
        kept = select(Artifact.id).where(
            Artifact.kind == SCORES,
            Artifact.digest == digest,
            col(Artifact.wrapped_key).is_not(None),
        )
        if (artifact := session.exec(kept.limit(1)).first()) is not None:
            services.artifacts.shred(session, artifact)
    return request.ref


def destroy_scope(services: Services, tx: Transaction, request: ErasureRequest) -> str:
    """Destroy a request's scope and the openings of its entries; return its ref."""
    session = tx.session
    request.forgotten_at = tx.now
    request.event_key, request.body_digest, request.idempotency_key = b"", "", None
    request.scope = {"level": request.scope["level"]}
    request.reason = request.notes = request.assignee = None
    session.connection().execute(delete(Callback).where(col(Callback.ref) == request.ref))
    for event in session.exec(
        select(RequestEvent).where(RequestEvent.request_id == request.id)
    ).all():
        event.payload = {}
    return request.ref


def destroy_contact(services: Services, tx: Transaction, found: Case) -> str:
    """Destroy the contact address of a case; return its ref."""
    found.contact = None
    return found.ref


def destroy_case(services: Services, tx: Transaction, found: Case) -> str:
    """Destroy ticket, check, key and intake proof of a case; return its ref."""
    found.contact = found.ticket = found.checked = found.key = None
    tx.session.flush()
    destroy_proofs(tx.session)
    return found.ref


def destroy_key(services: Services, tx: Transaction, found: RequesterKey) -> str:
    """Destroy a revoked key's client and subject; return its registration's ref.

    The key stays bound, to a placeholder: an unbound key could erase everything.
    """
    found.client = DESTROYED if found.client is not None else None
    found.subject = DESTROYED if found.subject is not None else None
    found.salt = None
    key_rows(tx.session).seal(found)
    return found.ref or ""


_DESTROY: Mapping[str, Callable[[Services, Transaction, Any], str]] = {
    "evidence": destroy_evidence,
    "scope": destroy_scope,
    "contact": destroy_contact,
    "case": destroy_case,
    "key": destroy_key,
}
