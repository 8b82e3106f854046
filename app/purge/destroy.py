"""Destroying what was kept long enough, one thing at a time, with the caller's transaction.

Keys are destroyed and rows emptied here; the files of shredded artifacts go after the commit.
The row of a request without a scope, its certificate and the log's entries remain: they say
that there was a request, when, under which law, and how it ended.
"""

from sqlalchemy import delete
from sqlmodel import col, select

from app.ledger.key_rows import key_rows
from app.ledger.transaction import Transaction
from app.service.access.keys import DESTROYED
from app.service.context import Services
from app.service.intake.following import destroy_proofs
from lethe.certificates.evidence import SCORES
from models import (
    Artifact,
    Callback,
    Case,
    ErasureRequest,
    RequesterKey,
    RequestEvent,
    Verification,
)


def evidence(services: Services, tx: Transaction, request: ErasureRequest) -> str:
    """Destroy the evidence and the scores of a request; its ref is returned."""
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
        # One of them alone: another request may have the same scores in a file of its own.
        kept = select(Artifact.id).where(
            Artifact.kind == SCORES,
            Artifact.digest == digest,
            col(Artifact.wrapped_key).is_not(None),
        )
        if (artifact := session.exec(kept.limit(1)).first()) is not None:
            services.artifacts.shred(session, artifact)
    return request.ref


def scope(services: Services, tx: Transaction, request: ErasureRequest) -> str:
    """Destroy what a request asked for and what opens its entries; its ref is returned."""
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


def contact(services: Services, tx: Transaction, found: Case) -> str:
    """Destroy the contact address of a case; its ref is returned."""
    found.contact = None
    return found.ref


def case(services: Services, tx: Transaction, found: Case) -> str:
    """Destroy ticket, check, key and intake proof of a case; its ref is returned."""
    found.contact = found.ticket = found.checked = found.key = None
    tx.session.flush()
    destroy_proofs(tx.session)
    return found.ref


def key(services: Services, tx: Transaction, found: RequesterKey) -> str:
    """Destroy whom a revoked key is bound to; the ref of its registration is returned.

    It stays bound, to nobody: a key that lost its binding could erase everything.
    """
    found.client = DESTROYED if found.client is not None else None
    found.subject = DESTROYED if found.subject is not None else None
    found.salt = None
    key_rows(tx.session).seal(found)
    return found.ref or ""
