"""What operators decide on requests and cases: approve, refuse, extend, withdraw and more.

Each is an entry of the log, which names the operator's token and is shown to the person. A ref
names a case, and then all requests that were submitted with it, or a single request. Each
raises NotFoundError if there is no such case, request or id, and PeopleChangedError if the log
has it otherwise than the database.
"""

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session, col, or_, select

from app.ledger.journal import record_request_event
from app.ledger.key_rows import key_rows
from app.ledger.transaction import Transaction
from app.problems import (
    ConflictError,
    ForbiddenError,
    KeyUnloggedError,
    NotFoundError,
    NotWithdrawableError,
)
from app.reconcile.approval import (
    APPROVED,
    ON_BEHALF,
    PAUSE,
    RESUMED,
    keys_named,
    last_decision,
    person,
    submitters,
)
from app.reconcile.case_parts import logged_parts
from app.reconcile.judgement import RECEIVED, Event, deadline, opened
from app.reconcile.model_events import CLOSED, request_events
from app.reconcile.people import PeopleChangedError
from app.reconcile.registrations import registrations
from app.schemas.base import format_time
from app.schemas.requests import RequestView
from app.service import parts
from app.service.access.roles import DECIDING
from app.service.context import Services
from app.service.deadlines import due_at, zone_of
from app.service.queue import head_of_queue
from app.service.requests import (
    close,
    end_releases,
    end_withdrawn,
    find,
    is_begun,
    view,
)
from app.service.review import (
    ASSIGNED,
    AWAITING_REVIEW,
    COOLING_OFF,
    EXTENDED,
    HELD,
    NOTED,
    PAUSED,
    release,
)
from lethe.catalogue import COMPLAINT, EXTENSIONS, PAUSES, REFUSALS
from lethe.log.entries import CommitmentError, EntryError
from models import BearerToken, Case, ErasureRequest, Job, Model, Release, RequestEvent

REFUSABLE = (*HELD, "received", "awaiting-client")  # as long as no worker has begun
UNLIKE = "the database and the log disagree on the request: run `lethe log fsck`"


@dataclass(frozen=True, slots=True)
class _Open:
    """A request that an officer acts on, its job, and its events by the log.

    Deadlines are computed from the events: write access is enough to change times in a row.
    """

    request: ErasureRequest
    job: Job
    events: Sequence[Event]

    @property
    def is_paused(self) -> bool:
        """Whether its clock is stopped."""
        last = last_decision(self.events)
        return last is not None and last.event == PAUSE

    def at(self, session: Session, event: Event) -> datetime:
        """Return the time of one of its events, which the entry commits to."""
        return session.get_one(RequestEvent, event.index).at


_Act = Callable[[Transaction, _Open], None]


def approve(services: Services, ref: str, operator: str) -> None:
    """Approve the execution of requests that wait for review.

    Raises:
        ForbiddenError: The operator submitted it, registered the key that signed it, or issued
            the code that it was submitted with.
        KeyUnloggedError: The log does not say who registered the key that signed it.
        ConflictError: Nothing of it waits for review.
    """

    def act(tx: Transaction, found: _Open) -> None:
        refs = keys_named(found.events)
        by = submitters(found.events, registrations(services.ledger, tx.session, refs))
        if by is None:
            raise KeyUnloggedError(
                "the log does not say who registered the key that signed the request: run "
                "`lethe log fsck`, and restore `key_events` or refuse the request"
            )
        if person(operator) in by:
            raise ForbiddenError(
                "nobody approves their own submission, a request signed with a key that they "
                "registered, or one made with a code that they issued: have another operator "
                "or officer approve it, with a token of another name"
            )
        request, job = found.request, found.job
        record_request_event(tx, request, APPROVED, {"by": operator})
        model = tx.session.get_one(Model, request.model_id)
        if model.cooling_off:
            request.state = COOLING_OFF
            request.held_until = tx.now + timedelta(seconds=model.cooling_off)
        else:
            release(request, job)

    _act(services, ref, (AWAITING_REVIEW,), "waits for review", act)


def refuse(services: Services, ref: str, operator: str, reason: str) -> None:
    """Refuse the requests that no worker has begun; the entry carries the notice of remedies.

    Raises ConflictError: a worker has begun all of it, or the regulation knows no such reason.
    """

    def act(tx: Transaction, found: _Open) -> None:
        request = found.request
        text = _reason(REFUSALS, request, reason)
        notice = COMPLAINT[request.regulation]
        end_releases(services, tx, request)
        close(services, tx, request, found.job, "refused", text, by=operator, notice=notice)

    needed = "can be refused any more: a worker has begun, or it is closed"
    _act(services, ref, REFUSABLE, needed, act, unbegun=True)


def extend(services: Services, ref: str, operator: str, reason: str) -> None:
    """Extend the deadline, once, by what the regulation allows.

    Raises ConflictError: it has ended, was extended before, is overdue, or the regulation knows
    no such reason.
    """

    def act(tx: Transaction, found: _Open) -> None:
        request = found.request
        text = _reason(EXTENSIONS, request, reason)
        if any(one.event == EXTENDED for one in found.events):
            raise ConflictError("the deadline was already extended: the law allows it once")
        before = datetime.fromisoformat(deadline(found.events))
        if before < tx.now and not found.is_paused:
            raise ConflictError(
                "the first period is over: the person had to be notified of an extension "
                "within it"
            )
        zone, received = zone_of(services.settings), _received(services, tx.session, found)
        paused = before - datetime.fromisoformat(found.events[0].payload["due_at"])
        due = due_at(received, request.regulation, zone, extended=True, paused=paused)
        request.due_at, request.reminded = due, None
        asked = select(Release).where(Release.request_id == request.id, Release.state == "open")
        for one in tx.session.exec(asked):  # clients have more time to answer, too
            one.escalates_at += due - before
        payload = {
            "by": operator,
            "reason": text,
            "notice": COMPLAINT[request.regulation],
            "due_at": format_time(due),
        }
        record_request_event(tx, request, EXTENDED, payload)

    _act(services, ref, None, "is open", act)


def pause(services: Services, ref: str, operator: str, reason: str) -> None:
    """Stop the clock while the person is asked for something; only under the GDPR.

    Raises ConflictError: it is not held, is overdue, or the regulation knows no pause or no
    such reason.
    """

    def act(tx: Transaction, found: _Open) -> None:
        request = found.request
        text = _reason(PAUSES, request, reason)
        # What is paused is not overdue, and may be extended.
        if datetime.fromisoformat(deadline(found.events)) < tx.now:
            raise ConflictError(
                "the deadline has passed, so there is no clock to stop: ask the person, and "
                "decide"
            )
        request.state, request.paused_at, request.held_until = PAUSED, tx.now, None
        record_request_event(tx, request, PAUSE, {"by": operator, "reason": text})

    _act(services, ref, (AWAITING_REVIEW, COOLING_OFF), "waits for review or cools off", act)


def resume(services: Services, ref: str, operator: str) -> None:
    """Restart the clock: the deadline moves by the pause. The request waits for review.

    Raises ConflictError: it is not paused.
    """

    def act(tx: Transaction, found: _Open) -> None:
        request, last = found.request, last_decision(found.events)
        if last is None or not found.is_paused:
            raise PeopleChangedError(UNLIKE)
        before = datetime.fromisoformat(deadline(found.events))
        request.due_at = before + (tx.now - found.at(tx.session, last))
        request.state, request.paused_at, request.reminded = AWAITING_REVIEW, None, None
        payload = {"by": operator, "due_at": format_time(request.due_at)}
        record_request_event(tx, request, RESUMED, payload)

    _act(services, ref, (PAUSED,), "is paused", act)


def note(services: Services, ref: str, operator: str, text: str) -> None:
    """Keep a note with an open request; the log has a keyed digest of it.

    Raises ConflictError: it has ended.
    """

    def act(tx: Transaction, found: _Open) -> None:
        request = found.request
        payload = {"by": operator, "note": note_digest(request, text)}
        index = record_request_event(tx, request, NOTED, payload)
        request.notes = {**(request.notes or {}), str(index): text}

    _act(services, ref, None, "is open", act)


def assign(services: Services, ref: str, operator: str, to: str) -> None:
    """Assign an open request to an operator or officer, or to the caller.

    Raises NotFoundError: also if no operator's or officer's token has the name `to`;
    ConflictError: it has ended.
    """

    def act(tx: Transaction, found: _Open) -> None:
        if to != operator and to not in _deciding(tx.session):
            raise NotFoundError(
                "no token of an operator or officer has this name: see `lethe token list`"
            )
        found.request.assignee = to
        record_request_event(tx, found.request, ASSIGNED, {"by": operator, "to": to})

    _act(services, ref, None, "is open", act)


def assignable(services: Services) -> list[str]:
    """Return the names of operators and officers, to whom a case can be assigned."""
    with services.reading() as session:
        return sorted(_deciding(session))


def _deciding(session: Session) -> set[str]:
    rows = key_rows(session)
    living = select(BearerToken).where(
        col(BearerToken.scope).in_(DECIDING), col(BearerToken.revoked_at).is_(None)
    )
    return {token.name for token in session.exec(living) if rows.is_believed(token)}


def withdraw(services: Services, request_id: str, operator: str) -> RequestView:
    """Withdraw a request that this operator submitted for a person, before it is executed.

    Raises ForbiddenError: by the log, somebody else submitted it, or a key signed it;
    NotWithdrawableError: a worker has begun, or the request is closed otherwise.
    """

    def effect(tx: Transaction) -> Job | None:
        return _withdraw(services, tx, find(tx.session, request_id), operator)

    if (following := services.ledger.transact(effect)) is not None:
        services.dispatcher.nudge(following.id, following.stage)
    return view(services, request_id)


def withdraw_all(services: Services, ref: str, operator: str) -> None:
    """Withdraw the requests that this operator submitted with a case and no worker has begun.

    Raises:
        ForbiddenError: By the log, somebody else submitted one, or a key signed one.
        NotWithdrawableError: A worker has begun all open ones.
        ConflictError: Nothing of it is open.
    """

    def effect(tx: Transaction) -> list[tuple[str, str]]:
        following: dict[str, str] = {}
        done, late = 0, None
        for request in requests_of(services, tx.session, ref):
            if request.state in CLOSED:
                continue
            try:  # it changes nothing before it raises
                job = _withdraw(services, tx, request, operator)
            except NotWithdrawableError as error:
                late = error
                continue
            done += 1
            if job is not None:
                following[job.id] = job.stage
        if not done:
            raise late or ConflictError(
                "nothing of this case or request is open: see its state"
            )
        return list(following.items())

    for job_id, stage in services.ledger.transact(effect):
        services.dispatcher.nudge(job_id, stage)


def _withdraw(
    services: Services, tx: Transaction, request: ErasureRequest, operator: str
) -> Job | None:
    """Withdraw a request; return the next job of its model. Raises as `withdraw`."""
    if request.keyid is not None:
        raise ForbiddenError("a key signed this request: it is withdrawn with that key")
    if request.state not in CLOSED:  # closed ones are not changed
        events = _open(services, tx.session, request).events
        by = [one.payload.get("by") for one in events if one.event == ON_BEHALF]
        if operator not in by:
            raise ForbiddenError(
                "another operator submitted this request: it is withdrawn with that token"
            )
    return end_withdrawn(services, tx, request, by=operator)


def _received(services: Services, session: Session, found: _Open) -> datetime:
    """Return when a request was received; one that was submitted for a case, when that was.

    It may have taken the place of another's request, which the case followed at first. Raises
    PeopleChangedError unless the log commits to the case's dates.
    """
    named = [one.payload["case"] for one in found.events if one.event == ON_BEHALF]
    if not named:
        return found.at(session, found.events[0])
    case = session.get(Case, named[0])
    if case is None or logged_parts(services.ledger, case) is None:
        raise PeopleChangedError(UNLIKE)
    return case.received_at


def note_digest(request: ErasureRequest, text: str) -> str:
    """Return the digest by which the log commits to a note."""
    return hmac.digest(bytes(request.event_key), b"note\0" + text.encode(), "sha256").hex()


def _reason(
    known: Mapping[str, Mapping[str, str]], request: ErasureRequest, reason: str
) -> str:
    """Return a reason in words. Raises ConflictError if the regulation does not know it."""
    choice = known[request.regulation]
    if not choice:
        raise ConflictError(
            f"the {request.regulation.upper()} allows no pause: its period runs from receipt"
        )
    if reason not in choice:
        raise ConflictError(
            f"reason: choose one that the {request.regulation.upper()} knows: "
            f"{', '.join(choice)}"
        )
    return choice[reason]


def _act(
    services: Services,
    ref: str,
    states: Sequence[str] | None,
    needed: str,
    act: _Act,
    *,
    unbegun: bool = False,
) -> None:
    """Act on the requests of a ref that are in one of some states, None for any open one.

    unbegun: only on those that no worker has begun.
    """

    def effect(tx: Transaction) -> list[tuple[str, str]]:
        models: dict[int, None] = {}
        done = 0
        for request in requests_of(services, tx.session, ref):
            if request.state in CLOSED or (states is not None and request.state not in states):
                continue
            found = _open(services, tx.session, request)
            if unbegun and is_begun(found.request, found.job):
                continue
            act(tx, found)
            done += 1
            models[request.model_id] = None
        if not done:
            raise ConflictError(f"nothing of this case or request {needed}: see its state")
        tx.session.flush()
        heads = [head_of_queue(tx.session, model_id) for model_id in models]
        return [(head.id, head.stage) for head in heads if head is not None]

    for job_id, stage in services.ledger.transact(effect):
        services.dispatcher.nudge(job_id, stage)


def requests_of(services: Services, session: Session, ref: str) -> list[ErasureRequest]:
    """Return the request of a ref or id, or those that were submitted with the case of a ref.

    Raises NotFoundError: there is none; PeopleChangedError: the parts of the case are not those
    that the log commits to.
    """
    named = or_(ErasureRequest.ref == ref, ErasureRequest.id == ref)
    if (request := session.exec(select(ErasureRequest).where(named)).first()) is not None:
        return [request]
    case = session.get(Case, ref)
    if case is None:
        raise NotFoundError("no case and no request has this reference: see `lethe case list`")
    found = [session.get(ErasureRequest, one) for one in parts.requests_in(services, case)]
    return [one for one in found if one is not None and one.case_ref == ref]


def _open(services: Services, session: Session, request: ErasureRequest) -> _Open:
    job = session.exec(select(Job).where(Job.request_id == request.id)).one()
    try:
        events = opened(session, request, request_events(services.ledger, request.ref))
    except (CommitmentError, EntryError):
        raise PeopleChangedError(UNLIKE) from None
    received = events[0] if events and events[0].event == RECEIVED else None
    if received is None or received.payload["regulation"] != request.regulation:
        raise PeopleChangedError(UNLIKE)
    return _Open(request, job, events)
