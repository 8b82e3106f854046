"""Erasure requests: accept, show, withdraw, list."""

import base64
import hashlib
import secrets
import uuid
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.sequencer import Transaction
from app.problems import (
    IdempotencyMismatchError,
    MethodUnavailableError,
    ModelNotReadyError,
    NotFoundError,
    NotWithdrawableError,
    ScopeChangedError,
    UnknownModelError,
)
from app.reconcile.judgement import is_unproven
from app.reconcile.model_events import request_events
from app.schemas.base import format_time
from app.schemas.requests import (
    Accepted,
    HistoryItem,
    NewRequest,
    Receipt,
    RequestView,
    Scope,
)
from app.service.context import Services
from app.service.deadlines import due_at
from app.service.ladder import attempt_view
from app.service.methods import SKETCHED, offered
from app.service.queue import PARKED, head_of_queue, progress_of
from app.service.scope import check_scope, claim, narrow
from app.service.signatures import current_key
from app.steps import reached
from lethe.signing.http import SignedBy
from models import (
    Certificate,
    ErasureRequest,
    Job,
    Model,
    Record,
    Release,
    RequesterKey,
    RequestEvent,
)

UNPROVEN = "a request of it was executed, and ended without a verification that it passed"
ALONE = (
    "This request erases a single record, and the model is updated for it alone. Whoever has "
    "the model from before and from after can compute the record from the difference. The "
    "operator can have requests wait for one another, or you can name several records in one."
)
NARROWED = (
    "The key is bound to a client or subject, and the request to what of it is the key's: "
    "see its scope."
)
CHECKS = 3  # before a request is told that what it names keeps changing
CLOSED = ("certified", "refused", "withdrawn")  # a failed request still waits for someone


def submit(
    services: Services,
    signed: SignedBy,
    body: bytes,
    wanted: NewRequest,
    idempotency_key: str | None,
) -> Accepted:
    """Make a request durable and return its receipt.

    When this returns, the log entry, the request and its job are on disk together and the
    checkpoint that proves it is signed. The same Idempotency-Key gets the same answer.

    Raises:
        LetheError: From `app.problems` or `lethe.signing.errors`; nothing is stored.
    """
    reached("request.checked")
    digest = hashlib.sha256(body).hexdigest()
    for tried in range(1, CHECKS + 1):
        _check(services, signed, wanted, idempotency_key, digest)
        try:
            request_id, job_id = _commit(services, signed, wanted, idempotency_key, digest)
            break
        except ScopeChangedError:  # another was quicker: now it can be said what became of it
            if tried == CHECKS:
                raise
    reached("request.committed")
    if job_id is not None:
        services.dispatcher.nudge(job_id)
    reached("request.dispatched")
    return _accepted(services, request_id, wanted.scope, is_new=job_id is not None)


def _check(
    services: Services,
    signed: SignedBy,
    wanted: NewRequest,
    idempotency_key: str | None,
    digest: str,
) -> None:
    """Refuse, with the reason, what cannot be accepted; from a snapshot, so nobody waits.

    Ten thousand ids that nobody holds cost a second: not under the lock of the log.
    """
    with services.reading() as session:
        key = current_key(session, signed, "requester")
        if _first_answer(session, signed.keyid, idempotency_key, digest) is not None:
            return
        model, _ = _choose(session, wanted)
        scope = narrow(wanted.scope, key)
        most = services.settings.max_scope_records
        check_scope(session, services.master, model, key, scope, most)


def _commit(
    services: Services,
    signed: SignedBy,
    wanted: NewRequest,
    idempotency_key: str | None,
    digest: str,
) -> tuple[str, str | None]:
    """Store a request, or find the one that it repeats; return its id and a new one's job."""

    def effect(tx: Transaction) -> tuple[str, str | None]:
        key = current_key(tx.session, signed, "requester")
        earlier = _first_answer(tx.session, signed.keyid, idempotency_key, digest)
        if earlier is not None:
            return earlier.id, None
        request = _create(services, tx, key, wanted, idempotency_key, digest)
        job = Job(
            id=str(uuid.uuid4()),
            model_id=request.model_id,
            kind="erase",
            request_id=request.id,
            stage="execute",
            created_at=tx.now,
        )
        tx.session.add(job)
        if services.settings.batch_min_requests > 1:
            # This one may be what those at the head of the queue have waited for.
            tx.session.flush()
            head = head_of_queue(tx.session, request.model_id)
            assert head is not None
            return request.id, head.id
        return request.id, job.id

    return services.committer.submit(effect)


def _accepted(services: Services, request_id: str, asked: Scope, *, is_new: bool) -> Accepted:
    with services.reading() as session:
        request = session.get_one(ErasureRequest, request_id)
        warnings = _warnings(services, session, request, asked)
    receipt = services.ledger.receipt(request.log_index)
    return Accepted(
        id=request.id,
        ref=request.ref,
        # A worker may have begun by now; a new request is answered as it was accepted.
        state="received" if is_new else request.state,
        due_at=request.due_at,
        receipt=Receipt(
            log_index=receipt.log_index,
            tree_size=receipt.tree_size,
            leaf=base64.b64encode(receipt.leaf).decode(),
            hashes=[base64.b64encode(value).decode() for value in receipt.hashes],
            checkpoint=receipt.checkpoint,
        ),
        warnings=warnings,
    )


def _warnings(
    services: Services, session: Session, request: ErasureRequest, asked: Scope
) -> list[str]:
    """Return what the requester should know; the same for each answer to a request."""
    received = session.get(RequestEvent, request.log_index)
    single = received is not None and received.payload["records"] == 1
    warnings = [ALONE] if single and services.settings.batch_min_requests == 1 else []
    if request.scope != asked.model_dump(exclude_none=True):
        warnings.append(NARROWED)
    return warnings


def _first_answer(
    session: Session, keyid: str, idempotency_key: str | None, digest: str
) -> ErasureRequest | None:
    if idempotency_key is None:
        return None
    earlier = session.exec(
        select(ErasureRequest).where(
            ErasureRequest.keyid == keyid,
            ErasureRequest.idempotency_key == idempotency_key,
        )
    ).first()
    if earlier is not None and earlier.body_digest != digest:
        raise IdempotencyMismatchError(
            "this Idempotency-Key came with another body before: use a new key"
        )
    return earlier


def _create(
    services: Services,
    tx: Transaction,
    key: RequesterKey,
    wanted: NewRequest,
    idempotency_key: str | None,
    digest: str,
) -> ErasureRequest:
    session = tx.session
    model, method = _choose(session, wanted)
    assert model.id is not None
    scope = narrow(wanted.scope, key)
    request = ErasureRequest(
        id=str(uuid.uuid4()),
        ref=str(uuid.uuid4()),
        model_id=model.id,
        keyid=key.keyid,
        method=method,
        scope=scope.model_dump(exclude_none=True),
        regulation=wanted.regulation,
        event_key=secrets.token_bytes(32),
        log_index=-1,
        idempotency_key=idempotency_key,
        body_digest=digest,
        received_at=tx.now,
        due_at=due_at(tx.now, wanted.regulation),
    )
    session.add(request)
    session.flush()
    claimed = claim(session, model, key, scope, request.id)
    request.log_index = record_request_event(
        tx,
        request,
        "request.received",
        {
            "model": model.ref,
            "method": method,
            "scope": request.scope,
            "records": claimed,
            "keyid": key.keyid,
            "regulation": wanted.regulation,
            "due_at": format_time(request.due_at),
            "body": digest,
        },
    )
    return request


def _choose(session: Session, wanted: NewRequest) -> tuple[Model, str]:
    """Return the model that a request names and the method it is unlearned with."""
    model = session.exec(select(Model).where(Model.ref == wanted.model)).first()
    if model is None:
        raise UnknownModelError("no model has this reference: GET /v1/models lists them")
    method = wanted.method or model.method
    if method not in (choice := offered(model.config)):
        raise MethodUnavailableError(f"this model offers: {', '.join(choice)}")
    sketches = model.config["data"] == "statistics" and SKETCHED in (model.method, method)
    if sketches and model.method != method:
        # Its clients may send sketches, from which no exact method can go on.
        raise MethodUnavailableError(f"this model offers: {model.method}")
    if model.state != "ready":
        raise ModelNotReadyError("the model has no fitted version yet: try again later")
    return model, method


def view(services: Services, request_id: str) -> RequestView:
    """Return a request with its history.

    Raises:
        NotFoundError: Nobody holds a request of that id.
    """
    with services.reading() as session:
        request = find(session, request_id)
        model = session.get_one(Model, request.model_id)
        events = session.exec(
            select(RequestEvent)
            .where(RequestEvent.request_id == request.id)
            .order_by(col(RequestEvent.log_index))
        ).all()
        job = session.exec(select(Job).where(Job.request_id == request.id)).one()
        issued = session.get(Certificate, request.id) is not None
        return RequestView(
            id=request.id,
            ref=request.ref,
            state=request.state,
            model=model.ref,
            method=request.method,
            scope=None if request.forgotten_at else Scope.model_validate(request.scope),
            regulation=request.regulation,
            due_at=request.due_at,
            reason=request.reason,
            attempt=attempt_view(model, request, job, events),
            progress=progress_of(job),
            history=[
                HistoryItem(event=event.event, at=event.at, log_index=event.log_index)
                for event in events
            ],
            certificate=certificate_path(request.id) if issued else None,
        )


def find(session: Session, request_id: str) -> ErasureRequest:
    """Return a request by its id.

    Raises:
        NotFoundError: There is none.
    """
    request = session.get(ErasureRequest, request_id)
    if request is None:
        raise NotFoundError("no request has this id")
    return request


def certificate_path(request_id: str) -> str:
    """Return where a request's certificate is served."""
    return f"/v1/requests/{request_id}/certificate"


def withdraw(services: Services, signed: SignedBy, request_id: str) -> RequestView:
    """Withdraw a request that no worker has begun, or that waits for a client's answer.

    Raises:
        NotFoundError: No such request, or it was signed with another key.
        NotWithdrawableError: A worker has begun, or the request is closed otherwise.
    """

    def effect(tx: Transaction) -> None:
        key = current_key(tx.session, signed, "requester")
        request = find(tx.session, request_id)
        if request.keyid != key.keyid:
            raise NotFoundError("no request has this id")
        if request.state == "withdrawn":  # sent again: the first answer may have been lost
            return
        job = tx.session.exec(select(Job).where(Job.request_id == request.id)).one()
        waits = request.state in ("received", "needs-decision")
        begun = not waits or job.lease_token != 0
        if begun and (request.state != "awaiting-client" or job.stage != PARKED):
            raise NotWithdrawableError("execution has begun or the request is closed")
        for release in tx.session.exec(
            select(Release).where(Release.request_id == request.id, Release.state != "done")
        ).all():
            if release.upload_id is not None:
                services.artifacts.shred(tx.session, release.upload_id)
                release.upload_id = None
            release.state = "done"
        close(services, tx, request, job, "withdrawn", None)

    services.committer.submit(effect)
    return view(services, request_id)


def close(
    services: Services,
    tx: Transaction,
    request: ErasureRequest,
    job: Job,
    state: str,
    reason: str | None,
) -> None:
    """End a request without a certificate and give its records free again.

    If the log has it executed and not judged PASS since, its model goes out of service with
    it: the version that is current may be a refuted one, whatever the job's row says.

    Raises what `request_events` raises.
    """
    model = tx.session.get_one(Model, request.model_id)
    leaves = request_events(services.ledger, request.ref)
    if model.state != "quarantined" and is_unproven(tx.session, request, leaves):
        model.state, model.failure = "quarantined", UNPROVEN
        record_model_event(tx, model.ref, "model.quarantined", {})
    request.state = state
    request.reason = reason
    job.stage = "done"
    job.done_at = tx.now
    job.lease_until = None
    claimed = update(Record).where(col(Record.claimed_by) == request.id)
    tx.session.connection().execute(claimed.values(claimed_by=None))
    payload: dict[str, str] = {} if reason is None else {"reason": reason}
    record_request_event(tx, request, f"request.{state}", payload)


def is_overdue(request: ErasureRequest, now: datetime) -> bool:
    """Return whether an open request has passed its deadline."""
    return request.state not in CLOSED and request.due_at < now
