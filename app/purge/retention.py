"""Ends the retention of closed requests (scope, openings, evidence, scores) and revoked keys.

The row without a scope, the certificate, and the log's entries, which nobody can open any more,
remain: they say that there was a request, when, under which law, and how it ended.
"""

from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlmodel import Session, col, func, select

from app.ledger.key_rows import believed, key_rows
from app.ledger.transaction import Transaction
from app.service.access.keys import DESTROYED
from app.service.context import Services
from app.service.requests import CLOSED
from lethe.certificates.evidence import SCORES
from models import Artifact, Callback, ErasureRequest, RequesterKey, RequestEvent, Verification
from models.database.clock import clock

AT_ONCE = 100  # requests in one transaction, while others wait


def end_retention(services: Services) -> int:
    """Destroy what is kept of requests that ended long enough ago; return of how many."""
    kept = timedelta(days=services.settings.request_retention_days)
    with services.reading() as session:
        if not _due(session, clock(session) - kept):
            return 0

    def effect(tx: Transaction) -> int:
        due = _due(tx.session, tx.now - kept)
        for request in due:
            _forget(services, tx, request)
        tx.session.flush()
        return len(due)

    return services.ledger.transact(effect, checkpoint=False)


def _due(session: Session, before: datetime) -> list[ErasureRequest]:
    last = (
        select(func.max(RequestEvent.at))
        .where(col(RequestEvent.request_id) == col(ErasureRequest.id))
        .scalar_subquery()
    )
    query = (
        select(ErasureRequest)
        .where(
            col(ErasureRequest.forgotten_at).is_(None),
            col(ErasureRequest.state).in_(CLOSED),
            col(ErasureRequest.received_at) < before,
            last < before,
        )
        .limit(AT_ONCE)
    )
    return list(session.exec(query))


def _forget(services: Services, tx: Transaction, request: ErasureRequest) -> None:
    session = tx.session
    request.forgotten_at = tx.now
    request.event_key, request.body_digest, request.idempotency_key = b"", "", None
    request.scope = {"level": request.scope["level"]}
    request.reason = request.notes = request.assignee = None
    session.connection().execute(delete(Callback).where(col(Callback.ref) == request.ref))
    events = session.exec(
        select(RequestEvent).where(RequestEvent.request_id == request.id)
    ).all()
    scores = {str(event.payload[SCORES]) for event in events if SCORES in event.payload}
    kept = select(Artifact.id).where(
        Artifact.kind == SCORES,
        col(Artifact.digest).in_(scores),
        col(Artifact.wrapped_key).is_not(None),
    )
    artifacts = list(session.exec(kept))
    if (verification := session.get(Verification, request.id)) is not None:
        artifacts.append(verification.evidence_id)
    for event in events:
        event.payload = {}
    session.flush()
    for artifact in artifacts:
        services.artifacts.shred(session, artifact)


def forget_bindings(services: Services) -> int:
    """Destroy whom revoked keys without an open request are bound to; return how many keys.

    They stay bound, to nobody: a key that lost its binding could erase everything.
    """
    with services.reading() as session:
        if not (wanted := _ended(session)):
            return 0

    def effect(tx: Transaction) -> int:
        found = [believed(tx.session, RequesterKey, keyid) for keyid in wanted]
        keys = [key for key in found if key is not None]
        for key in keys:
            key.client = DESTROYED if key.client is not None else None
            key.subject = DESTROYED if key.subject is not None else None
            key.salt = None
            key_rows(tx.session).seal(key)
        tx.session.flush()
        return len(keys)

    return services.ledger.transact(effect, checkpoint=False)


def _ended(session: Session) -> list[str]:
    still = select(ErasureRequest.keyid).where(
        col(ErasureRequest.state).not_in(CLOSED), col(ErasureRequest.keyid).is_not(None)
    )
    revoked = select(RequesterKey.keyid).where(
        col(RequesterKey.revoked_at).is_not(None), col(RequesterKey.keyid).not_in(still)
    )
    keys = [believed(session, RequesterKey, keyid) for keyid in session.exec(revoked).all()]
    return [
        key.keyid
        for key in keys
        if key is not None and not {key.client, key.subject} <= {None, DESTROYED}
    ]
