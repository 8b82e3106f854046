"""The end of retention: destroys due items, then logs the numbers.

    transaction 1   undecided requests refused, each by its own entry       signed
                    keys destroyed and rows emptied, each with a row of     durable
                    `retention_removals` that no entry counts yet
    files           unlinked, and the database scrubbed
    transaction 2   one entry that counts those rows                        signed

Transaction 1 is repeated for each page of what the tables have as due, kind by kind. An item
that is not due by its log entries is left and reported (`app.purge.confirmed`). A crash between
two of these lines leaves nothing half destroyed and no false entry: the next run continues, and
its entry counts what the interrupted run destroyed. A request's row without a scope, its
certificate and its log entries remain: they record that there was a request, when, under which
law, and how it ended.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from typing import Any

from sqlalchemy import delete
from sqlmodel import Session, col, func, select

from app.ledger.journal import record_retention_event
from app.ledger.key_rows import key_rows
from app.ledger.transaction import Transaction
from app.purge import due
from app.purge.confirmed import confirmed, scores_files
from app.reconcile.holds import NOTHING, Held, held
from app.reconcile.retention import cut_offs, items_digest
from app.service.access.keys import DESTROYED
from app.service.context import Services
from app.service.decisions import lapse
from app.service.intake.following import destroy_proof, forget_proofs
from app.steps import reached
from app.vault.scrub import scrub
from lethe.catalogue import RETAINED
from lethe.certificates.evidence import SCORES
from lethe.log.entries import Ended
from models import (
    Callback,
    Case,
    ErasureRequest,
    LegalHold,
    RequesterKey,
    RequestEvent,
    RetentionRemoval,
    Verification,
)
from models.database.types import clock

AT_ONCE = 100  # items in one transaction; bounds how long others wait
ENDED = "retention.ended"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RetentionRun:
    """Numbers of items that a run destroyed, or would destroy, by kind.

    held: due items under a legal hold. differs: items that are due by the tables and not by the
    log. before: the cut-off dates. log_index: of the run's log entry, which may also count
    items of an interrupted run; None without an entry.
    """

    dry_run: bool
    removed: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    differs: Counter[str] = field(default_factory=Counter)
    before: dict[str, date] = field(default_factory=dict)
    log_index: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the result as `lethe retention run --json` prints it."""
        return {
            "dry_run": self.dry_run,
            "removed": {kind: self.removed[kind] for kind in RETAINED},
            "held": {kind: self.held[kind] for kind in RETAINED},
            "differs": {kind: self.differs[kind] for kind in RETAINED},
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
    for kind in RETAINED:
        after: str | None = ""
        while after is not None:
            page = services.ledger.transact(
                partial(_destroy, services, found, kind, after),
                checkpoint=kind == "undecided",  # its requests are refused in the log
            )
            found.removed.update(page.removed)
            found.differs[kind] += page.differs
            after = page.last
    forget_proofs(services)
    found.removed, found.differs = +found.removed, +found.differs
    if found.differs:
        log.error("not destroyed, because tables and log differ: %s", dict(found.differs))
    reached("retention.destroyed")
    services.artifacts.unlink_shredded(services.engine)
    scrub(services.engine)  # if a long reader still needs old pages, the sweep repeats it
    reached("retention.unlinked")
    found.log_index = services.ledger.transact(log_removals)
    with services.reading() as session:
        found.held = _held(services, session, held(services.ledger, session))
    return found


def plan(services: Services) -> RetentionRun:
    """Return what a run would destroy now, without changing anything.

    Raises HoldsChangedError: as `run`.
    """
    found = RetentionRun(dry_run=True)
    with services.reading() as session:
        ends = cut_offs(services.settings, clock(session))
        found.before = {kind: before.date() for kind, before in ends.items()}
        keeps = held(services.ledger, session)
        for kind, before in ends.items():
            after: str | None = ""
            while after is not None:
                page = _page(services, session, kind, before, keeps, after, planned=True)
                found.removed[kind] += len(page.items)
                found.differs[kind] += page.differs
                after = page.last
        found.removed, found.differs = +found.removed, +found.differs
        found.held = _held(services, session, keeps)
    return found


def _held(services: Services, session: Session, keeps: Held) -> Counter[str]:
    """Count by kind what is due and held, by the tables."""
    return _count(services, session, NOTHING) - _count(services, session, keeps)


def _count(services: Services, session: Session, keeps: Held) -> Counter[str]:
    """Count by kind what is due by the tables, except what `keeps` holds."""
    found = Counter[str]()
    for kind, before in cut_offs(services.settings, clock(session)).items():
        query = due.selected(kind, before, keeps, planned=True)
        if kind == "key":
            found[kind] = len(due.bound(session, session.exec(query)))
        else:
            counted = select(func.count()).select_from(query.subquery())
            found[kind] = session.exec(counted).one()
    return found


@dataclass(frozen=True, slots=True)
class _Page:
    """Due items in the order of their ids. last: the id to go on after, None at the end."""

    items: Sequence[Any]
    differs: int
    last: str | None
    removed: Counter[str] = field(default_factory=Counter)


def _destroy(
    services: Services, found: RetentionRun, kind: str, after: str, tx: Transaction
) -> _Page:
    """Destroy and list a page of due items of a kind."""
    session = tx.session
    # The log's lock keeps new holds out: placing one takes the same lock.
    keeps = held(services.ledger, session)
    ends = cut_offs(services.settings, tx.now)
    found.before = {kind: before.date() for kind, before in ends.items()}
    page = _page(services, session, kind, ends[kind], keeps, after)
    _empty(services, tx, kind, page.items, ends[kind])
    page.removed[kind] += len(page.items)
    if kind == "evidence" and page.items:
        # No hold comes between the evidence and the scope of a request.
        ids = [one.id for one in page.items]
        query = due.scope(ends["scope"], keeps).where(col(ErasureRequest.id).in_(ids))
        rows = session.exec(query).all()
        scopes = confirmed(services, session, "scope", rows, ends["scope"], keeps)
        _empty(services, tx, "scope", scopes, ends["scope"])
        page.removed["scope"] += len(scopes)
    return page


def _empty(
    services: Services, tx: Transaction, kind: str, items: Sequence[Any], before: datetime
) -> None:
    for one in items:
        ref = DESTROY[kind](services, tx, one)
        tx.session.add(RetentionRemoval(kind=kind, ref=ref, before=before, at=tx.now))
    tx.session.flush()


def _page(
    services: Services,
    session: Session,
    kind: str,
    before: datetime,
    keeps: Held,
    after: str,
    *,
    planned: bool = False,
) -> _Page:
    """Return up to AT_ONCE due items with an id above `after`, compared with the log."""
    place = _PLACE[kind]
    query = due.selected(kind, before, keeps, planned=planned)
    query = query.where(place > after).order_by(place)
    if kind == "key":  # most revoked keys have been emptied
        keys = due.bound(session, session.exec(query))
        last = keys[AT_ONCE - 1].keyid if len(keys) > AT_ONCE else None
        return _Page(keys[:AT_ONCE], 0, last)
    rows = session.exec(query.limit(AT_ONCE)).all()
    last = getattr(rows[-1], place.key) if len(rows) == AT_ONCE else None
    if kind == "undecided":  # fsck reports a request whose key is gone: nothing can answer it
        rows = [one for one in rows if one.event_key]
    elif kind in ("contact", "case"):
        rows = due.without_followers(session, rows, before)
    items = confirmed(services, session, kind, rows, before, keeps, planned=planned)
    return _Page(items, len(rows) - len(items), last)


def log_removals(tx: Transaction) -> int | None:
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


def refuse_undecided(services: Services, tx: Transaction, request: ErasureRequest) -> str:
    """Refuse a request that nobody decided on, and destroy its inputs; return its ref."""
    lapse(services, tx, request)
    return request.ref


def destroy_evidence(services: Services, tx: Transaction, request: ErasureRequest) -> str:
    """Destroy the evidence and the scores of a request; return its ref."""
    session = tx.session
    found = session.get_one(Verification, request.id)
    services.artifacts.shred(session, found.evidence_id, "evidence")
    if not request.event_key:  # put back: a row with scores is another request's
        return request.ref
    query = select(RequestEvent).where(RequestEvent.request_id == request.id)
    events = session.exec(query.order_by(col(RequestEvent.log_index))).all()
    digests = [str(one.payload[SCORES]) for one in events if SCORES in one.payload]
    for artifact in scores_files(services, session, digests) or ():
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
    destroy_proof(tx.session, found.ref)
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


def destroy_hold(services: Services, tx: Transaction, found: LegalHold) -> str:
    """Delete a released hold; return its id. The log keeps that there was one."""
    tx.session.delete(found)
    return found.id


_PLACE: Mapping[str, Any] = {
    "undecided": col(ErasureRequest.id),
    "evidence": col(ErasureRequest.id),
    "scope": col(ErasureRequest.id),
    "contact": col(Case.ref),
    "case": col(Case.ref),
    "key": col(RequesterKey.keyid),
    "hold": col(LegalHold.id),
}
DESTROY: Mapping[str, Callable[[Services, Transaction, Any], str]] = {
    "undecided": refuse_undecided,
    "evidence": destroy_evidence,
    "scope": destroy_scope,
    "contact": destroy_contact,
    "case": destroy_case,
    "key": destroy_key,
    "hold": destroy_hold,
}
