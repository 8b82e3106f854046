"""The request of a case in one model: the open one that erases its records, or a new one."""

import hmac
import secrets
import uuid
from collections.abc import Sequence
from hashlib import sha256

from sqlmodel import Session, col, select

from app import logs
from app.ledger.journal import record_request_event
from app.ledger.key_rows import believed
from app.ledger.transaction import Transaction
from app.problems import ConflictError, ScopeChangedError
from app.reconcile.approval import ON_BEHALF, PAIRED
from app.reconcile.judgement import opened
from app.reconcile.model_events import request_events
from app.reconcile.people import PeopleChangedError
from app.schemas.base import format_time
from app.schemas.people import NewCase
from app.schemas.requests import NewRequest, Scope
from app.service.admission import RECEIVED, choose
from app.service.context import Services
from app.service.desk.parts import UNLIKE
from app.service.desk.people import Found
from app.service.review import start
from app.service.scope import claim, covers
from app.vault.master import RootSecret
from app.vault.request_ref import request_ref
from lethe import canonical
from lethe.log.entries import CommitmentError, EntryError
from models import Case, ErasureRequest, Job, Model, Record, RequesterKey
from models.database.session import chunks


class _Anybody:
    """The binding of an operator, who reaches every record."""

    client: str | None = None
    subject: str | None = None


def request_for(wanted: NewCase, found: Found) -> NewRequest:
    """Return the request that erases the records of a person in one model."""
    scope = Scope(level="sample", records=list(found.learned))
    return NewRequest(model=found.model.ref, scope=scope, regulation=wanted.regulation)


def claimant(
    services: Services, session: Session, model: Model, records: Sequence[str]
) -> str | None:
    """Return the open request that erases all of these records, None if none is claimed.

    Raises PeopleChangedError: the model does not hold a record that has identities, or the log
    has the request with another scope; ConflictError: some are being erased by other requests,
    and not all by one, or the request is not open any more.
    """
    claims: dict[str, str | None] = {}
    for chunk in chunks(list(records)):
        query = select(Record.record, Record.claimed_by).where(
            Record.model_id == model.id, col(Record.record).in_(chunk)
        )
        claims |= dict(session.exec(query).all())
    if len(claims) != len(records):
        raise PeopleChangedError(
            "a record with identities is not in the training set: run `lethe log fsck`"
        )
    by = set(claims.values())
    if by == {None}:
        return None
    if len(by) > 1:
        raise ConflictError(
            f"some of the person's records in the model {model.ref} are being erased by an "
            "earlier request: try again once it is certified"
        )
    request_id = by.pop()
    assert request_id is not None
    _check_covers(services, session, model, request_id, records)
    return request_id


def _check_covers(
    services: Services, session: Session, model: Model, request_id: str, records: Sequence[str]
) -> None:
    """Check that an open request erases these records, by its scope in the log.

    The table `records` alone is not trusted: a forged claim would let the certificate of
    another person's request answer the case.
    """
    request = session.get_one(ErasureRequest, request_id)
    try:
        events = opened(session, request, request_events(services.ledger, request.ref))
    except (CommitmentError, EntryError):
        raise PeopleChangedError(UNLIKE) from None
    received = [event.payload for event in events if event.event == RECEIVED]
    if not received:
        raise ConflictError(
            f"an earlier request for the person's records in the model {model.ref} is not open "
            "any more: see its status, then try again"
        )
    scope = Scope.model_validate(received[0]["scope"])
    if received[0]["model"] != model.ref or not covers(session, model.id, scope, records):
        raise PeopleChangedError(UNLIKE)


def submit(
    tx: Transaction,
    case: Case,
    wanted: NewCase,
    model: Model,
    found: Found,
    jobs: dict[str, str],
    issued_by: str | None,
    root_secret: RootSecret,
) -> str:
    """Submit a request for the records of a person, as `app.service.admission` does.

    jobs: receives the id of its job, and the job's first stage.
    """
    session, new = tx.session, request_for(wanted, found)
    method = choose(model, new)
    assert model.id is not None
    scope = new.scope.model_dump(exclude_none=True)
    begins = start(model, None, tx.now)
    request_id = str(uuid.uuid4())
    request = ErasureRequest(
        id=request_id,
        ref=request_ref(root_secret, request_id),
        model_id=model.id,
        keyid=None,
        state=begins.state,
        held_until=begins.held_until,
        case_ref=case.ref,
        method=method,
        scope=scope,
        regulation=new.regulation,
        event_key=secrets.token_bytes(32),
        log_index=tx.next_index,
        body_digest=sha256(canonical.encode(scope)).hexdigest(),
        received_at=tx.now,
        due_at=case.due_at,
    )
    session.add(request)
    session.flush()
    if claim(session, model.id, _Anybody(), new.scope, request.id) != len(found.learned):
        raise ScopeChangedError("a record of the person was claimed just now: try again")
    received = {
        "model": model.ref,
        "method": method,
        "scope": scope,
        "records": len(found.learned),
        "keyid": None,
        "binding": None,
        "regulation": new.regulation,
        "due_at": format_time(request.due_at),
        "body": request.body_digest,
    }
    record_request_event(tx, request, RECEIVED, received)
    assert case.key is not None
    on_behalf = {
        "case": case.ref,
        "by": case.opened_by,
        "ticket": hmac.digest(case.key, b"ticket\0" + wanted.ticket.encode(), "sha256").hex(),
        "checked": wanted.checked,
        "issued_by": issued_by,
        "imported_by": found.importers,
        "registration": _agents_key(session, case.opened_by),
    }
    record_request_event(tx, request, ON_BEHALF, on_behalf)
    job = Job(
        id=str(uuid.uuid4()),
        model_id=model.id,
        kind="erase",
        request_id=request.id,
        call_id=logs.call_id(),
        stage=begins.stage,
        created_at=tx.now,
    )
    session.add(job)
    session.flush()
    jobs[job.id] = job.stage
    return request.id


def _agents_key(session: Session, name: str) -> str | None:
    """Return the log's reference of a paired agent's key, None for other names."""
    if not name.startswith(PAIRED):
        return None
    key = believed(session, RequesterKey, name.removeprefix(PAIRED))
    return None if key is None else key.ref
