"""What the log must say of a request before it is certified, for the signer and for fsck.

Tables name the evidence, the verdict and the stage of a job. Whoever can write them can name
another's. The log's entries commit to what was judged when it was judged.
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
# What may come between a judgement and its certificate: the wait for a key or a disk, and what
# an officer writes of the request.
WAITS = (
    "request.needs-decision",
    DECIDED,
    "request.extended",
    "request.noted",
    "request.assigned",
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a request with what the log's entry at `index` commits to."""

    index: int
    event: str
    payload: Mapping[str, Any]


def opened(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> list[Event]:
    """Return a request's events, `leaves` of the log with their index, opened.

    Raises:
        CommitmentError: What is stored does not open all of them.
        EntryError: The stored key or event is not of the shape that a leaf commits to.
    """
    indexes = [index for index, _ in leaves]
    stored = {event.log_index: event for event in read_by_id(session, RequestEvent, indexes)}
    found = []
    for index, leaf in leaves:
        event = stored.get(index)
        if event is None or leaf.event is None or leaf.commitment is None:
            raise CommitmentError("the opening of an event is missing")
        if event.event != leaf.event:  # readers go by the column
            raise CommitmentError("the stored event has another name than the one in the log")
        document = opening(request.ref, leaf.event, event.at, event.payload)
        check_commitment(bytes(request.event_key), document, leaf.commitment)
        found.append(Event(index, leaf.event, event.payload))
    return found


def deadline(events: Sequence[Event]) -> str:
    """Return the deadline that a request's opened events, the first received it, end with."""
    return [str(one.payload["due_at"]) for one in events if one.event in DUE][-1]


def is_executed(leaves: Sequence[tuple[int, Leaf]]) -> bool:
    """Return whether a request's leaves say that it was executed: its rows are gone."""
    return any(leaf.event == EXECUTED for _, leaf in leaves)


def is_unproven(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> bool:
    """Return whether a request was executed and its last execution has no PASS in the log.

    What is stored may not open the leaves: then it is unproven too.
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
    """Return whether the last execution among a request's events has a verdict after it."""
    last = [event for event in events if event in (EXECUTED, VERIFIED)][-1:]
    return last == [VERIFIED]


def _judged_twice(events: Sequence[Event]) -> bool:
    """Return whether an execution has two verdicts.

    A worker that dies before it has recorded one has logged none, so there never are honestly.
    """
    verdicts = [event.event for event in events if event.event in (EXECUTED, VERIFIED)]
    return any(pair == (VERIFIED, VERIFIED) for pair in pairwise(verdicts))


def contradiction(events: Sequence[Event], evidence: str, claim: str) -> str | None:
    """Return why a request's events allow no certificate, None where they do.

    Each execution has one judgement at most. The last must be PASS, of this evidence (hex
    SHA-256) and this claim, and nothing may have happened to the request since but a wait.
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
