"""Review: which requests need an officer's approval before execution, decided by the log.

A request that waits is parked: it blocks no other, and it can be withdrawn. Tables only say
that it waits. Whether it was approved is read from the log, in the transaction that would
execute it: write access to the database can queue a job, but not have it executed.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from sqlmodel import Session, col, select

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.reconcile.approval import (
    APPROVED,
    HELD_BACK,
    PAUSE,
    REFUSED,
    RESUMED,
    keys_named,
    permission,
)
from app.reconcile.judgement import ATTEMPT, ESCALATED, EXECUTED, VERIFIED, Event, opened
from app.reconcile.model_events import requests_events
from app.reconcile.registrations import KeyRegistration, registrations
from app.service.context import Services
from app.service.queue import PARKED
from lethe.log.entries import CommitmentError, EntryError, Leaf
from models import ErasureRequest, Job, Model, RequestEvent
from models.database.types import clock

AWAITING_REVIEW, COOLING_OFF, PAUSED = "awaiting-review", "cooling-off", "paused"
HELD = (AWAITING_REVIEW, COOLING_OFF, PAUSED)  # held before the execution
EXTENDED, NOTED, ASSIGNED = "request.extended", "request.noted", "request.assigned"
WITHDRAWN = "request.withdrawn"
NEEDS_DECISION, DECIDED = "request.needs-decision", "request.decided"
WAITED = ("reason", "decision", "by", "why")  # members of their entries
NUMBERED = (ESCALATED, EXECUTED, VERIFIED)  # their entries name an attempt
SHOWN = (APPROVED, REFUSED, EXTENDED, PAUSE, RESUMED, NOTED, ASSIGNED)


class Policy(Protocol):
    """A model's registered policy on approvals."""

    @property
    def decide(self) -> str:
        """`review` or `at-once`."""

    @property
    def cooling_off(self) -> int:
        """Seconds."""


class Start(NamedTuple):
    """The first state of a request, and the first stage of its job."""

    state: str
    stage: str
    held_until: datetime | None


def start(policy: Policy, binding: str | None, now: datetime) -> Start:
    """Return the first state and stage of a request.

    binding: `client` or `subject` of a bound key that a second person confirmed, else None.
    """
    if policy.decide == "review" and binding is None:
        return Start(AWAITING_REVIEW, PARKED, None)
    if policy.cooling_off:
        return Start(COOLING_OFF, PARKED, now + timedelta(seconds=policy.cooling_off))
    return Start("received", "execute", None)


def unapproved(
    ledger: Ledger,
    session: Session,
    model: Model,
    requests: Sequence[ErasureRequest],
    now: datetime,
) -> list[ErasureRequest]:
    """Return the requests that may not be executed now, by the log, not by their rows.

    model: after it was checked against its registration.

    Raises what `requests_events` raises.
    """
    if model.decide == "at-once" and not model.cooling_off:
        return []
    leaves = requests_events(ledger, [one.ref for one in requests])
    events = {one.id: _events(session, one, leaves[one.ref]) for one in requests}
    named = keys_named(event for several in events.values() for event in several)
    registered = registrations(ledger, session, named)
    return [
        one for one in requests if not _may(session, model, events[one.id], registered, now)
    ]


def _events(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> list[Event]:
    """Return a request's events, none if the stored rows do not open all of them."""
    try:
        return opened(session, request, leaves)
    except (CommitmentError, EntryError):
        return []


def _may(
    session: Session,
    model: Model,
    events: Sequence[Event],
    registered: Mapping[str, KeyRegistration],
    now: datetime,
) -> bool:
    permitted = permission(events, model.ref, model.decide, registered)
    if permitted is None:
        return False
    begun = session.get_one(RequestEvent, permitted.index).at
    return begun + timedelta(seconds=model.cooling_off) <= now


def detail(event: RequestEvent, *, staff: bool) -> dict[str, str]:
    """Return an officer's decision for the person or, with names, for the staff.

    The staff also sees why a request waits for a decision, and the decision with its reason.
    Both see the number of the attempt, once there is a second one or a method was replaced.
    """
    if event.event in NUMBERED and ATTEMPT in event.payload:
        number = event.payload[ATTEMPT]
        return {ATTEMPT: str(number)} if number > 1 or event.event == ESCALATED else {}
    if staff and event.event in (NEEDS_DECISION, DECIDED):
        return {name: str(event.payload[name]) for name in WAITED if event.payload.get(name)}
    if event.event not in (*SHOWN, WITHDRAWN):
        return {}
    fields = ("reason", "notice", "due_at") + (("by", "to") if staff else ())
    return {name: str(event.payload[name]) for name in fields if event.payload.get(name)}


def hold(tx: Transaction, request: ErasureRequest, job: Job) -> None:
    """Move a request that was about to be executed without approval to review."""
    request.state, request.held_until = AWAITING_REVIEW, None
    job.stage, job.tries, job.deaths, job.lease_until = PARKED, 0, 0, None
    record_request_event(tx, request, HELD_BACK, {})


def release(request: ErasureRequest, job: Job) -> None:
    """Release a held request to the workers."""
    request.state, request.held_until = "received", None
    job.stage = "execute"


def end_cooling_off(services: Services) -> None:
    """Release the requests whose cooling-off period is over; the sweep nudges their jobs."""
    with services.reading() as session:
        if not _cooled(session, clock(session)):
            return

    def effect(tx: Transaction) -> None:
        for request, job in _cooled(tx.session, tx.now):
            release(request, job)
        tx.session.flush()

    services.ledger.transact(effect, checkpoint=False)


def _cooled(session: Session, now: datetime) -> list[tuple[ErasureRequest, Job]]:
    query = (
        select(ErasureRequest, Job)
        .join(Job, col(Job.request_id) == col(ErasureRequest.id))
        .where(ErasureRequest.state == COOLING_OFF, col(ErasureRequest.held_until) <= now)
        .limit(100)
    )
    return list(session.exec(query))
