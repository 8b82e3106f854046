"""Erasure requests that were accepted: show, withdraw, close."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, update
from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.transaction import Transaction
from app.problems import NotFoundError, NotWithdrawableError
from app.reconcile.judgement import is_unproven
from app.reconcile.model_events import request_events
from app.reconcile.people import PeopleChangedError
from app.schemas.requests import HistoryItem, RequestView, Scope
from app.service.context import Services
from app.service.methods import attempt_view
from app.service.on_behalf import FOLLOWED, continue_without
from app.service.queue import PARKED, head_of_queue, progress_of
from app.service.review import HELD, PAUSED, detail
from app.service.signatures import current_key
from app.vault.request_ref import request_ref
from app.witnesses.rows import WAITING, Rows
from lethe.signing.http import SignedBy
from models import Certificate, ErasureRequest, Job, Model, Record, Release, RequestEvent

UNPROVEN = "a request of it was executed, and ended without a verification that it passed"
CLOSED = ("certified", "refused", "withdrawn")  # a failed request still waits for someone


def view(services: Services, request_id: str) -> RequestView:
    """Return a request with its history.

    Raises NotFoundError if there is no request of that id.
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
        certificate = session.get(Certificate, request.id)
        waits = certificate is not None and Rows(services.ledger).waits(
            session, certificate.log_index
        )
        return RequestView(
            id=request.id,
            ref=request.ref,
            state=request.state,
            model=model.ref,
            method=request.method,
            scope=None if request.forgotten_at else Scope.model_validate(request.scope),
            regulation=request.regulation,
            due_at=request.due_at,
            reason=WAITING if waits else request.reason,
            attempt=attempt_view(model, request, job, events),
            progress=progress_of(job),
            history=[
                HistoryItem(
                    event=event.event,
                    at=event.at,
                    log_index=event.log_index,
                    detail=detail(event, staff=False),
                )
                for event in events
                # Whoever asked for these records, too, is nothing for the requester.
                if event.event != FOLLOWED
            ],
            certificate=certificate_path(request.id) if certificate and not waits else None,
        )


def find(session: Session, request_id: str) -> ErasureRequest:
    """Return a request by its id. Raises NotFoundError if there is none."""
    request = session.get(ErasureRequest, request_id)
    if request is None:
        raise NotFoundError("no request has this id")
    return request


def require_own_ref(services: Services, request: ErasureRequest) -> None:
    """Check that a request has its own reference, under which its events are logged.

    Raises PeopleChangedError if the database has another one.
    """
    if request.ref != request_ref(services.root_secret, request.id):
        raise PeopleChangedError(
            "the database stores the request under another request's reference: run `lethe log "
            "fsck`, and restore the table erasure_requests from a backup"
        )


def id_of(services: Services, ref: str) -> str:
    """Return the id of the request of a public reference. Raises NotFoundError.

    The id is a capability to read the request's scope: for code, never for pages.
    """
    with services.reading() as session:
        query = select(ErasureRequest.id).where(ErasureRequest.ref == ref)
        found = session.exec(query).first()
    if found is None:
        raise NotFoundError("no request has this reference")
    return found


def certificate_path(request_id: str) -> str:
    """Return the path where a request's certificate is served."""
    return f"/v1/requests/{request_id}/certificate"


def withdraw(services: Services, signed: SignedBy, request_id: str) -> RequestView:
    """Withdraw a request that no worker has begun, or that waits for a client's answer.

    Raises:
        NotFoundError: No such request, or it was signed with another key.
        NotWithdrawableError: A worker has begun, or the request is closed otherwise.
        PeopleChangedError: The database has it under the reference of another request.
    """

    def effect(tx: Transaction) -> Job | None:
        key = current_key(tx.session, signed, "requester")
        request = find(tx.session, request_id)
        if request.keyid != key.keyid:
            raise NotFoundError("no request has this id")
        require_own_ref(services, request)
        return end_withdrawn(services, tx, request)

    if (following := services.committer.submit(effect)) is not None:
        services.dispatcher.nudge(following.id, following.stage)
    return view(services, request_id)


def end_withdrawn(
    services: Services, tx: Transaction, request: ErasureRequest, **more: str
) -> Job | None:
    """Withdraw a request; return the next job of its model. more: members of its log entry.

    Raises NotWithdrawableError if a worker has begun, or the request is closed otherwise.
    """
    if request.state == "withdrawn":  # sent again: the first answer may have been lost
        return None
    job = tx.session.exec(select(Job).where(Job.request_id == request.id)).one()
    if is_begun(request, job):
        raise NotWithdrawableError("execution has begun or the request is closed")
    end_releases(services, tx, request)
    close(services, tx, request, job, "withdrawn", None, **more)
    tx.session.flush()
    return head_of_queue(tx.session, request.model_id)


def is_begun(request: ErasureRequest, job: Job) -> bool:
    """Return whether a worker has begun on a request, or it is closed: nothing stops it."""
    waits = request.state in ("received", "needs-decision", *HELD)
    begun = not waits or job.lease_token != 0
    return begun and (request.state not in ("awaiting-client", *HELD) or job.stage != PARKED)


def end_releases(services: Services, tx: Transaction, request: ErasureRequest) -> None:
    """End what clients were asked for a request, and destroy the answers that came."""
    for release in tx.session.exec(
        select(Release).where(Release.request_id == request.id, Release.state != "done")
    ).all():
        if release.upload_id is not None:
            services.artifacts.shred(tx.session, release.upload_id, "release")
            release.upload_id = None
        release.state = "done"


def close(
    services: Services,
    tx: Transaction,
    request: ErasureRequest,
    job: Job,
    state: str,
    reason: str | None,
    **more: str,
) -> None:
    """End a request without a certificate and release its claims.

    Cases that followed it get requests of their own.

    If by the log it was executed and not judged PASS since, its model is quarantined: the
    current version may be a refuted one, whatever the job's row says. A request that fails
    because its key is gone gets no entry, as nothing could open it; fsck reports it.

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
    if state == "failed" and not request.event_key:
        return
    payload = more if reason is None else {"reason": reason, **more}
    record_request_event(tx, request, f"request.{state}", payload)
    continue_without(services, tx, request, model, leaves)


def is_overdue(request: ErasureRequest | Row[Any], now: datetime) -> bool:
    """Return whether an open request has passed its deadline, and its clock is not stopped.

    now: by `models.database.types.clock`. A case that follows another's request has a deadline
    of its own: `app.service.desk.queue`.
    """
    return request.state not in (*CLOSED, PAUSED) and request.due_at < now


def is_running() -> ColumnElement[bool]:
    """Return the condition of an open request whose clock is not stopped."""
    return col(ErasureRequest.state).not_in((*CLOSED, PAUSED))


def overdue_at(now: datetime) -> ColumnElement[bool]:
    """Return `is_overdue` as a condition."""
    return and_(is_running(), col(ErasureRequest.due_at) < now)
