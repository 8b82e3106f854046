"""Entries, requests and certificates to log, and the means to tamper with a stored log."""

import secrets
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.schemas.base import format_time
from lethe.certificates.bundle import hashedrekord_leaf, sign_envelope
from lethe.certificates.evidence import ESCALATION_SCORES, SCORES
from lethe.certificates.statement import Subject, build_statement
from lethe.log.entries import model_leaf
from lethe.signing.keys import P256Key
from models import Artifact, Certificate, ErasureRequest, LogEntry, Model
from tests.lethe.certificates.build import contents

PREDICATE = contents()[1]
LOG_TABLES = ("log_entries", "log_nodes", "log_checkpoints")


def entry(number: int) -> bytes:
    """Return a valid leaf; different numbers give different leaves."""
    return model_leaf("model.released", "m", {"head": f"{number:064x}"}, date(2026, 1, 2))


def append(ledger: Ledger, *leaves: bytes, checkpoint: bool = True) -> list[int]:
    """Append leaves in one transaction and return their indices."""

    def effect(tx: Transaction) -> list[int]:
        return [tx.append(leaf) for leaf in leaves]

    return ledger.transact(effect, checkpoint=checkpoint)


def stored_leaves(engine: Engine) -> tuple[bytes, ...]:
    """Return every leaf in the database, in order."""
    with Session(engine) as session:
        return tuple(session.exec(select(LogEntry.leaf).order_by(col(LogEntry.index))))


def add_model(session: Session, ref: str = "m") -> Model:
    """Add a model row."""
    model = Model(
        ref=ref, method="ridge-exact", config={}, classes=[], extractor={}, tombstone_key=b"k"
    )
    session.add(model)
    session.flush()
    return model


def submit(ledger: Ledger, scope: str = "someone@example.org") -> str:
    """Log a received request and return its id."""

    def effect(tx: Transaction) -> str:
        session = tx.session
        model = session.exec(select(Model).where(Model.ref == "m")).first()
        model = model or add_model(session)
        session.flush()
        assert model.id is not None
        request = ErasureRequest(
            id=str(uuid.uuid4()),
            ref=str(uuid.uuid4()),
            model_id=model.id,
            keyid=None,
            method="ridge-exact",
            scope={"subject": scope},
            regulation="gdpr",
            event_key=secrets.token_bytes(32),
            log_index=-1,
            body_digest="",
            received_at=tx.now,
            due_at=datetime.now(UTC) + timedelta(days=30),
        )
        session.add(request)
        session.flush()
        due = format_time(request.due_at)
        said = {"model": model.ref, "scope": request.scope, "records": 3, "due_at": due}
        request.log_index = record_request_event(tx, request, "request.received", said)
        return request.id

    return ledger.transact(effect)


def judge(ledger: Ledger, *requests: str, **changes: str) -> None:
    """Log a PASS of each request, all in one transaction, with `changes` to its payload."""
    evidence = PREDICATE.retained_set.removal_proof
    said = {"result": "PASS", "evidence": evidence, "class": "exact", **changes}

    def effect(tx: Transaction) -> None:
        for request_id in requests:
            request = tx.session.get_one(ErasureRequest, request_id)
            record_request_event(tx, request, "request.verified", said)

    ledger.transact(effect)


def certify(ledger: Ledger, issuer: P256Key, request_id: str, **changes: Any) -> int:
    """Issue a certificate, with `changes` to its predicate; return the index of its leaf."""

    def effect(tx: Transaction) -> int:
        request = tx.session.get_one(ErasureRequest, request_id)
        certificate_id = str(uuid.uuid4())
        named = {"certificate_id": certificate_id, "request_ref": request.ref}
        said = replace(PREDICATE, **{**named, **changes})
        payload = build_statement([Subject("m/1", said.model.version_after.digest)], said)
        envelope = sign_envelope(payload, issuer, "issuer-1")
        index = tx.append(hashedrekord_leaf(envelope, issuer.public_key()))
        certificate = Certificate(
            request_id=request.id,
            id=said.certificate_id,
            envelope=envelope,
            issuer_keyid="issuer-1",
            result="PASS",
            log_index=index,
            issued_at=tx.now,
        )
        tx.session.add(certificate)
        digests = {part.name: part.digest for part in said.evidence}
        for name, digest in digests.items():
            kind = "scores" if name in (SCORES, ESCALATION_SCORES) else "evidence"
            tx.session.add(
                Artifact(
                    id=str(uuid.uuid4()), kind=kind, digest=digest, size=1, wrapped_key=b"k"
                )
            )
        request.state = "certified"
        record_request_event(tx, request, "request.certified", {"certificate": index})
        return index

    return ledger.transact(effect)


def tamper(engine: Engine, *statements: str | Callable[[Session], None]) -> None:
    """Change a database as its owner could, by dropping the triggers."""
    with Session(engine) as session:
        _drop_triggers(session)
        for statement in statements:
            if callable(statement):
                statement(session)
            else:
                session.connection().execute(text(statement))
        session.commit()


def rewind(engine: Engine, size: int) -> None:
    """Reset the log to a backup with `size` entries, all published."""
    tamper(
        engine,
        f'DELETE FROM log_entries WHERE "index" >= {size}',
        f'DELETE FROM log_nodes WHERE ("index" + 1) << level > {size}',
        f"DELETE FROM log_checkpoints WHERE size > {size}",
    )


def _drop_triggers(session: Session) -> None:
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        names = connection.execute(text(query)).scalars().all()
        statements = [f"DROP TRIGGER {name}" for name in names]
    else:
        tables = (*LOG_TABLES, "witnessed_checkpoints", "key_events")
        statements = [f"DROP TRIGGER {t}_append_only ON {t}" for t in tables]
        query = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%_append_only'"
        if connection.execute(text(query)).scalar_one() == 0:
            statements = []
    for statement in statements:
        connection.execute(text(statement))
