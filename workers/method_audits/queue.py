"""Pairs of audits as a queue in the database: taken, renewed, recorded once each.

Audits change no model and are not jobs: they wait for no request, and no request waits for
them.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, update
from sqlmodel import Session, col, func, select

from app.ledger.transaction import Transaction
from app.method_audits.audits import record_end
from app.service.context import Services
from lethe.certificates.audits.counts import FAILED
from models import Audit, AuditPair, Model
from models.database.types import clock

log = logging.getLogger(__name__)

TRIES = 8  # for a worker that loses one pair after another to faster ones


@dataclass(frozen=True, slots=True)
class LeasedPair:
    """A held pair. `token` fences the recording of its result."""

    audit_id: str
    pair: int
    token: int
    tries: int


def take(services: Services, audit_id: str) -> LeasedPair | None:
    """Take the next free pair; None if there is none, or `parallel` workers are busy.

    The result does not depend on which worker takes which pair.
    """
    for _ in range(TRIES):
        with Session(services.engine) as session:
            now = clock(session)
            # Locked: another worker must not count the places between this count and the take.
            audit = session.get(Audit, audit_id, with_for_update=True)
            if audit is None or audit.state != "running" or _places(session, audit, now) <= 0:
                return None
            following = select(AuditPair).where(AuditPair.audit_id == audit_id, free(now))
            row = session.exec(following.order_by(col(AuditPair.pair)).limit(1)).first()
            if row is None:
                return None
            held = {
                "lease_token": row.lease_token + 1,
                "tries": row.tries + 1,
                "lease_until": now + timedelta(seconds=services.settings.lease_seconds),
            }
            pair = _is(audit_id, row.pair, row.lease_token)
            taken = LeasedPair(audit_id, row.pair, row.lease_token + 1, row.tries + 1)
            updated = session.connection().execute(
                update(AuditPair).where(*pair, free(now)).values(**held)
            )
            if updated.rowcount == 1:
                session.commit()
                return taken
    return None


def idle(session: Session, audit: Audit, now: datetime) -> int:
    """Return how many more workers could take a pair of an audit now."""
    query = select(func.count()).where(AuditPair.audit_id == audit.id, free(now))
    return min(session.exec(query).one(), _places(session, audit, now))


def unfinished(session: Session, audit_id: str) -> int:
    """Return how many pairs of an audit are not computed yet."""
    query = select(func.count()).where(
        AuditPair.audit_id == audit_id, col(AuditPair.done_at).is_(None)
    )
    return session.exec(query).one()


def _places(session: Session, audit: Audit, now: datetime) -> int:
    """Return how many of the `parallel` places are free."""
    held = select(func.count()).where(
        AuditPair.audit_id == audit.id,
        col(AuditPair.done_at).is_(None),
        col(AuditPair.lease_until) > now,
    )
    return audit.parallel - session.exec(held).one()


def free(now: datetime) -> ColumnElement[bool]:
    """Return the condition that a pair is neither done nor held."""
    return col(AuditPair.done_at).is_(None) & or_(
        col(AuditPair.lease_until).is_(None), col(AuditPair.lease_until) <= now
    )


@contextmanager
def renewed(services: Services, taken: LeasedPair) -> Iterator[None]:
    """Keep a pair while the block runs, however long that is."""
    stop = threading.Event()
    seconds = services.settings.lease_seconds

    def run() -> None:
        while not stop.wait(seconds / 3):
            try:
                with services.engine.begin() as connection:
                    until = clock(connection) + timedelta(seconds=seconds)
                    connection.execute(
                        update(AuditPair)
                        .where(*_is(taken.audit_id, taken.pair, taken.token))
                        .values(lease_until=until)
                    )
            except Exception as error:
                # As of a job's lease: one missed renewal is harmless, if others follow.
                name = type(error).__name__
                log.warning("lease of a pair of audit %s not renewed: %s", taken.audit_id, name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def record(services: Services, taken: LeasedPair, values: Mapping[str, object]) -> bool:
    """Store the result of a pair; False if another worker holds it now."""
    with services.engine.begin() as connection:
        stored = connection.execute(
            update(AuditPair)
            .where(*_is(taken.audit_id, taken.pair, taken.token))
            .where(col(AuditPair.done_at).is_(None))
            .values(done_at=clock(connection), lease_until=None, **values)
        )
    return stored.rowcount == 1


def put_off(services: Services, taken: LeasedPair, seconds: int, *, counts: bool) -> None:
    """Let a pair that could not be computed cool down before its next try.

    counts: whether this try counts; environment errors are retried without limit.
    """
    with services.engine.begin() as connection:
        until = clock(connection) + timedelta(seconds=seconds)
        connection.execute(
            update(AuditPair)
            .where(*_is(taken.audit_id, taken.pair, taken.token))
            .values(lease_until=until, tries=taken.tries - (not counts))
        )


def pin_code(services: Services, audit_id: str, digest: str, version: str) -> bool:
    """Bind an audit to the code of its first worker; False if this worker's differs.

    digest: of trainings and methods. version: of the method.
    """
    with services.engine.begin() as connection:
        connection.execute(
            update(Audit)
            .where(col(Audit.id) == audit_id, col(Audit.code_digest).is_(None))
            .values(code_digest=digest, method_version=version)
        )
    with services.reading() as session:
        return session.get_one(Audit, audit_id).code_digest == digest


def fail(services: Services, audit_id: str, reason: str) -> None:
    """End an audit that cannot be finished. The reason is shown and contains no data."""

    def effect(tx: Transaction) -> None:
        audit = tx.session.get_one(Audit, audit_id)
        if audit.state != "running":
            return
        model = tx.session.get_one(Model, audit.model_id)
        audit.state, audit.failure = "failed", reason[:400]
        record_end(services, tx, audit, model, FAILED)
        tx.session.flush()

    services.ledger.transact(effect)


def _is(audit_id: str, pair: int, token: int) -> tuple[ColumnElement[bool], ...]:
    return (
        col(AuditPair.audit_id) == audit_id,
        col(AuditPair.pair) == pair,
        col(AuditPair.lease_token) == token,
    )
