"""The end of retention: destroy what was kept long enough, then say so in the log.

    transaction 1   keys destroyed and rows emptied, each with a row of     durable
                    `retention_removals` that no entry counts yet
    files           unlinked, and the database scrubbed
    transaction 2   one entry that counts those rows                        signed

Transaction 1 is repeated until nothing is due. A process that dies between two of these lines
leaves nothing half destroyed, and no entry says what is not so: the next run goes on, and its
entry counts what the dead one destroyed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from sqlmodel import Session, col, func, select

from app.ledger.journal import record_retention_event
from app.ledger.transaction import Transaction
from app.purge import destroy, due
from app.reconcile.holds import NOTHING, Held, held
from app.reconcile.retention import items_digest, stored_entries
from app.service.context import Services
from app.steps import reached
from app.vault.scrub import scrub
from lethe.catalogue import RETAINED
from lethe.log.entries import Ended
from models import ErasureRequest, RetentionRemoval
from models.database.clock import clock

AT_ONCE = 100  # of each kind in one transaction, while others wait
ENDED = "retention.ended"
_DESTROY: Mapping[str, Callable[[Services, Transaction, Any], str]] = {
    "evidence": destroy.evidence,
    "scope": destroy.scope,
    "contact": destroy.contact,
    "case": destroy.case,
    "key": destroy.key,
}


@dataclass(slots=True)
class RetentionRun:
    """What a run destroyed, or would destroy, by kind.

    held: what is due and a legal hold keeps. before: what had ended by then was due. log_index:
    of the entry that says so, which may also count what an interrupted run destroyed; None
    where there was nothing to say.
    """

    dry_run: bool
    removed: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    before: dict[str, date] = field(default_factory=dict)
    log_index: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as `lethe retention run --json` prints it."""
        return {
            "dry_run": self.dry_run,
            "removed": {kind: self.removed[kind] for kind in RETAINED},
            "held": {kind: self.held[kind] for kind in RETAINED},
            "before": {kind: day.isoformat() for kind, day in self.before.items()},
            "log_index": self.log_index,
        }


def run(services: Services) -> RetentionRun:
    """Destroy all that is due; doing it twice is doing it once.

    Raises:
        HoldsChangedError: Table and log disagree on legal holds: nothing more was destroyed.
        LetheError: The log may not be signed: nothing of the transaction was destroyed.
    """
    found = RetentionRun(dry_run=False)
    while removed := services.ledger.transact(
        lambda tx: _destroy(services, tx, found), checkpoint=False
    ):
        found.removed.update(removed)
    reached("retention.destroyed")
    services.artifacts.unlink_shredded(services.engine)
    scrub(services.engine)  # what a long reader keeps of old pages: the sweep does it again
    reached("retention.unlinked")
    found.log_index = services.ledger.transact(_record)
    with services.reading() as session:  # what a hold keeps is all that is still due
        found.held = _count(services, session, NOTHING)
    return found


def plan(services: Services) -> RetentionRun:
    """Return what a run would destroy now; change nothing.

    Raises:
        HoldsChangedError: As `run`.
    """
    found = RetentionRun(dry_run=True)
    with services.reading() as session:
        cut_offs = due.cut_offs(services.settings, clock(session))
        found.before = {kind: before.date() for kind, before in cut_offs.items()}
        found.removed = _count(services, session, held(services.ledger, session))
        found.held = _count(services, session, NOTHING) - found.removed
    return found


def _count(services: Services, session: Session, keeps: Held) -> Counter[str]:
    """Count what is due by kind, but for what holds keep."""
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
    """Destroy up to AT_ONCE of each kind and list it; return how many of each."""
    session, removed = tx.session, dict[str, int]()
    # Under the log's lock, like the placing of a hold: none comes in between.
    keeps = held(services.ledger, session)
    cut_offs = due.cut_offs(services.settings, tx.now)
    found.before = {kind: before.date() for kind, before in cut_offs.items()}
    for kind, before in cut_offs.items():
        items = _next(session, kind, before, keeps)
        for one in items:
            _list(session, kind, _DESTROY[kind](services, tx, one), before, tx.now)
        session.flush()
        if items:
            removed[kind] = len(items)
    return removed


def _next(session: Session, kind: str, before: datetime, keeps: Held) -> Sequence[Any]:
    query = due.selected(kind, before, keeps)
    if kind == "key":
        return due.bound(session, query)[:AT_ONCE]
    return session.exec(query.limit(AT_ONCE)).all()


def _list(session: Session, kind: str, ref: str, before: datetime, at: datetime) -> None:
    session.add(RetentionRemoval(kind=kind, ref=ref, before=before, at=at))


def _record(tx: Transaction) -> int | None:
    """Append the entry that counts what is destroyed and in no entry; return its index."""
    session = tx.session
    if not stored_entries(session):
        _adopt(tx)
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


def _adopt(tx: Transaction) -> None:
    """List the requests that an earlier version of Lethe ended: no entry says so yet."""
    session = tx.session
    listed = {row.ref for row in session.exec(select(RetentionRemoval)) if row.kind == "scope"}
    earlier = select(ErasureRequest).where(col(ErasureRequest.forgotten_at).is_not(None))
    for request in session.exec(earlier):
        if request.ref not in listed and request.forgotten_at is not None:
            _list(session, "scope", request.ref, request.forgotten_at, tx.now)
    session.flush()
