"""Requests that wait for a person's decision long after their deadline.

Such a request keeps what clients released for it, its drafts and its scope while nobody
decides. So it is refused once a period after its deadline, extended or not, has passed: its
requester is told, may send it again, and its retention begins.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from sqlmodel import Session, col, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from app.ledger.sequencer import Ledger
from app.reconcile.holds import Held
from app.reconcile.logged_requests import ENDS, LoggedRequest
from app.reconcile.model_events import requests_events
from lethe.log.entries import ERASURE_EVENT
from models import ErasureRequest, Job, LogEntry, Round
from models.job import PARKED

FAILED = "failed"
# By state: the events that may have been logged last. In other states a worker goes on by
# itself, or does once a date has come.
WAITING: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        state: frozenset(f"request.{event}" for event in events)
        for state, events in {
            "needs-decision": ("needs-decision",),
            FAILED: ("failed",),
            "awaiting-review": ("received", "on-behalf", "awaiting-review", "resumed"),
            "paused": ("paused",),
            "awaiting-client": ("awaiting", "escalated"),
            "awaiting-round": ("awaiting-round",),
            "escalated": ("escalated",),
        }.items()
    }
)
# They are logged beside what a request waits for.
_BESIDE = frozenset(
    f"request.{event}" for event in ("followed", "noted", "assigned", "extended")
)


def undecided(before: datetime, held: Held) -> SelectOfScalar[Any]:
    """Select the requests that wait for a person and were due before `before`.

    held: excluded. One that an open round releases is not selected, nor one that a restored
    backup has as open and the log as ended.
    """
    waits = or_(col(ErasureRequest.state).in_(("needs-decision", FAILED)), Job.stage == PARKED)
    ended = select(LogEntry.index).where(
        LogEntry.ref == ErasureRequest.ref,
        LogEntry.kind == ERASURE_EVENT,
        col(LogEntry.event).in_(ENDS),
    )
    going_on = select(Round.id).where(
        Round.model_id == ErasureRequest.model_id, col(Round.state).not_in(("done", "failed"))
    )
    return (
        select(ErasureRequest)
        .join(Job, col(Job.request_id) == col(ErasureRequest.id))
        .where(
            col(ErasureRequest.state).in_(WAITING),
            col(ErasureRequest.due_at) < before,
            col(ErasureRequest.forgotten_at).is_(None),
            waits,
            ~ended.exists(),
            ~going_on.exists(),
            ~held.request(),
        )
    )


def is_undecided(
    ledger: Ledger,
    session: Session,
    request: ErasureRequest,
    said: LoggedRequest | None,
    before: datetime,
    held: Held,
) -> bool:
    """Return whether a selected request waits for a person, and was due, by the log too.

    said: what its opened entries say. Raises as `requests_events`.
    """
    if said is None or said.ended is not None or said.due >= before:
        return False
    if held.keeps(request, said.model, said.case):
        return False
    told = [event for _, event in said.events if event not in _BESIDE]
    if told[-1] not in WAITING[request.state]:
        return False
    if request.state == FAILED:  # no process keeps the entries of a failed request
        query = select(LogEntry.index).where(
            LogEntry.ref == request.ref, LogEntry.kind == ERASURE_EVENT
        )
        logged = sorted(session.exec(query))
    else:
        logged = [index for index, _ in requests_events(ledger, [request.ref])[request.ref]]
    # All were opened: an extension whose row is missing would make it due early.
    return logged == [index for index, _ in said.events]
