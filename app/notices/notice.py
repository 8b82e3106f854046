"""The content of a notice, built from signed entries of the log when it is sent.

The row of a delivery names an entry and a receiver. The entry must have a valid MAC, and the
details of a request must open its commitment, so writing a table cannot forge a notice. A
notice holds public references, never a name or the id of a request, which is a secret.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session, col, select

from app.ledger.storage import read_entries
from app.notices import events
from app.reconcile.judgement import opened
from app.schemas.base import format_time
from app.service.context import Services
from app.service.requests import is_overdue
from lethe import canonical
from lethe.log.entries import CommitmentError, EntryError, Leaf, parse_leaf
from models import Delivery, ErasureRequest, RequestEvent
from models.database.types import clock

LABEL = "lethe notices 1"
DECISIONS = {"request.approved": "approved", "request.refused": "refused"}
DUE = ("request.received", "request.extended", "request.resumed")  # each sets the deadline


class NoNoticeError(Exception):
    """A delivery that is not sent; the message is a word that may be stored and shown."""


@dataclass(frozen=True, slots=True)
class Notice:
    """The body of a webhook. model: its reference, None for an alarm or a test."""

    event: str
    at: str
    data: Mapping[str, Any]
    model: str | None

    @property
    def body(self) -> bytes:
        """The JSON that is signed and sent."""
        said = {"type": self.event, "timestamp": self.at, "data": dict(self.data)}
        return canonical.encode(said)


def delivery_id(services: Services, receiver: str, event: str, about: str) -> str:
    """Return the id of a notice: deterministic, and not computable without the key."""
    assert services.ledger.entry_key is not None, "a ledger that only looks sends nothing"
    key = services.ledger.entry_key.derive(LABEL)
    said = canonical.encode(["delivery", receiver, event, about])
    return f"msg_{hmac.digest(key, said, 'sha256').hex()[:32]}"


def is_authentic(services: Services, row: Delivery) -> bool:
    """Return whether this installation made the delivery."""
    own = delivery_id(services, row.receiver, row.event, row.about)
    return hmac.compare_digest(own.encode(), row.id.encode())


def compose(services: Services, session: Session, event: str, about: str) -> Notice:
    """Return the notice of an entry, an alarm or a test.

    Raises NoNoticeError if the log does not, or no longer, support it.
    """
    if event in (events.ALARM, events.TEST):
        name, _, day = about.rpartition("@")
        said: dict[str, Any] = {"alarm": name} if event == events.ALARM else {}
        return Notice(event, f"{day}T00:00:00Z", said, None)
    index = int(about)
    leaf, day = entry(services, session, index)
    if event == events.VERSION and leaf.event == "model.version":
        assert leaf.ref is not None
        data = {"model": leaf.ref, "log_index": index, "digests": dict(leaf.digests)}
        return Notice(event, f"{day}T00:00:00Z", data, leaf.ref)
    return _of_request(services, session, event, index, leaf)


def entry(services: Services, session: Session, index: int) -> tuple[Leaf, str]:
    """Return an entry's leaf and day. Raises NoNoticeError unless its MAC is valid."""
    found = read_entries(session, index, index + 1).get(index)
    key = services.ledger.entry_key
    assert key is not None
    if found is None or not key.is_authentic(found):
        raise NoNoticeError("not in the log")
    return parse_leaf(found.leaf), found.day


def _of_request(
    services: Services, session: Session, event: str, index: int, leaf: Leaf
) -> Notice:
    request = session.exec(
        select(ErasureRequest).where(ErasureRequest.ref == (leaf.ref or ""))
    ).first()
    if request is None or not request.event_key:
        raise NoNoticeError("retention ended")
    said = opened_events(services, session, request)
    if index not in said or said[index].event != leaf.event:
        raise NoNoticeError("not as logged")
    received = next((one for one in said.values() if one.event == "request.received"), None)
    if received is None:
        raise NoNoticeError("not as logged")
    model = str(received.payload["model"])
    row, due = said[index], _due(said, index)
    data: dict[str, Any] = {"ref": request.ref, "model": model, "log_index": index}
    at = row.at
    if event == events.OVERDUE:
        due, at = _due(said, max(said)), clock(session)
        if not is_overdue(request, at) or not datetime.fromisoformat(due) < at:
            raise NoNoticeError("not overdue")
        data |= {"due_at": due}
        return Notice(event, due, data, model)
    if events.OF_LOG.get(row.event) != event:
        raise NoNoticeError("not as logged")
    match row.event:
        case "request.received":
            data |= {"regulation": str(row.payload["regulation"]), "due_at": due}
        case "request.extended":
            data |= {"due_at": due}
        case "request.on-behalf":
            data |= {"case": str(row.payload["case"])}
        case "request.certified":
            data |= {
                "result": str(row.payload["result"]),
                "certificate_log_index": row.payload["certificate"],
            }
        case "request.decided":
            data |= {"decision": str(row.payload["decision"])}
        case decided if decided in DECISIONS:
            data |= {"decision": DECISIONS[decided]}
    return Notice(event, format_time(at), data, model)


def opened_events(
    services: Services, session: Session, request: ErasureRequest
) -> dict[int, RequestEvent]:
    """Return a request's events by index, each of which opens its signed entry.

    Raises NoNoticeError unless all do.
    """
    query = select(RequestEvent).where(RequestEvent.request_id == request.id)
    stored = session.exec(query.order_by(col(RequestEvent.log_index))).all()
    leaves = [(one.log_index, entry(services, session, one.log_index)[0]) for one in stored]
    if any(leaf.ref != request.ref for _, leaf in leaves):
        raise NoNoticeError("not as logged")
    try:
        opened(session, request, leaves)
    except (CommitmentError, EntryError):
        raise NoNoticeError("not as logged") from None
    return {one.log_index: one for one in stored}


def _due(said: Mapping[int, RequestEvent], index: int) -> str:
    """Return the deadline as of an entry."""
    known = [
        str(row.payload["due_at"])
        for at, row in sorted(said.items())
        if at <= index and row.event in DUE
    ]
    return known[-1] if known else ""


def today(session: Session) -> str:
    """Return the database's day, ISO 8601."""
    return clock(session).astimezone(UTC).date().isoformat()
