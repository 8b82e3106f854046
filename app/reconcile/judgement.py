"""The logged judgement that a certificate needs, for the signer and for fsck.

Tables name a job's evidence, verdict and stage, and anyone with write access could name
another request's. The log's entries commit to what was judged, at the time of the judgement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlmodel import Session

from app.ledger.journal import opening
from lethe.log.entries import CommitmentError, EntryError, Leaf, check_commitment
from models import ErasureRequest, RequestEvent
from models.database.session import read_by_id

RECEIVED, EXECUTED, VERIFIED = "request.received", "request.executed", "request.verified"
ESCALATED, DECIDED, CERTIFIED = "request.escalated", "request.decided", "request.certified"
DUE = (RECEIVED, "request.extended", "request.resumed")  # each sets the deadline
# Events allowed between a judgement and its certificate: waiting for a key or a disk, and an
# officer's notes and assignments, and cases that follow the request.
WAITS = (
    "request.needs-decision",
    DECIDED,
    "request.extended",
    "request.noted",
    "request.assigned",
    "request.followed",
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a request, opened from the log's entry at `index`."""

    index: int
    event: str
    payload: Mapping[str, Any]


def opened(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> list[Event]:
    """Open a request's `leaves`, (log index, leaf), and return its events.

    Raises CommitmentError: the stored openings do not open all leaves; EntryError: the stored
    key or event does not have the shape that a leaf commits to.
    """
    indexes = [index for index, _ in leaves]
    stored = {event.log_index: event for event in read_by_id(session, RequestEvent, indexes)}
    found = []
    for index, leaf in leaves:
        event = stored.get(index)
        if event is None or leaf.event is None or leaf.commitment is None:
            raise CommitmentError("the opening of an event is missing")
        if event.event != leaf.event:  # readers use the column
            raise CommitmentError("the stored event has another name than the one in the log")
        document = opening(request.ref, leaf.event, event.at, event.payload)
        check_commitment(bytes(request.event_key), document, leaf.commitment)
        found.append(Event(index, leaf.event, event.payload))
    return found


def deadline(events: Sequence[Event]) -> str:
    """Return the last deadline in a request's opened events, which begin with its receipt."""
    return [str(one.payload["due_at"]) for one in events if one.event in DUE][-1]


def is_executed(leaves: Sequence[tuple[int, Leaf]]) -> bool:
    """Return whether a request was executed by its leaves: then its rows are erased."""
    return any(leaf.event == EXECUTED for _, leaf in leaves)


def is_unproven(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> bool:
    """Return whether a request was executed and its last execution has no PASS in the log.

    A request whose leaves cannot be opened is unproven too.
    """
    if not is_executed(leaves):
        return False
    try:
        events = opened(session, request, leaves)
    except (CommitmentError, EntryError):
        return True
    last = [event for event in events if event.event in (EXECUTED, VERIFIED)][-1]
    return last.payload.get("result") != "PASS"


def is_judged(events: Sequence[str]) -> bool:
    """Return whether a verdict follows the last execution among a request's events."""
    last = [event for event in events if event in (EXECUTED, VERIFIED)][-1:]
    return last == [VERIFIED]


def _judged_twice(events: Sequence[Event]) -> bool:
    """Return whether an execution has two verdicts.

    An honest worker never logs two: it logs and records a verdict together.
    """
    verdicts = [event.event for event in events if event.event in (EXECUTED, VERIFIED)]
    return any(pair == (VERIFIED, VERIFIED) for pair in pairwise(verdicts))


def contradiction(events: Sequence[Event], evidence: str, claim: str) -> str | None:
    """Return why a request's events allow no certificate, None if they do.

    Each execution has at most one judgement. The last must be PASS for this evidence (hex
    SHA-256) and this claim, and only events in WAITS may follow it.
    """
    places = [place for place, event in enumerate(events) if event.event == VERIFIED]
    if not places:
        return "the log has no judgement of this request"
    judged = events[places[-1]].payload
    if judged.get("result") != "PASS":
        return "the last judgement of this request in the log is no PASS"
    if judged.get("evidence") != evidence:
        return "the evidence is not that of the request's last judgement in the log"
    if judged.get("class") != claim:
        return "the last judgement in the log is of another class"
    if any(event.event not in WAITS for event in events[places[-1] + 1 :]):
        return "the log has more of this request after its last judgement"
    if _judged_twice(events):
        return "the log has two judgements of one execution of this request"
    return None
