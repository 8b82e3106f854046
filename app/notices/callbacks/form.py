"""The content of callbacks: what the outbox needs from each kind of message.

Each kind of callback has a form, which builds headers and body when a delivery is sent. The
form of requests is here; the protocols above this room have their own
(`app.protocols.cases`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from sqlmodel import Session, select

from app.ledger.callback_rows import REQUEST
from app.notices import events
from app.notices.callbacks.key import headers_of
from app.notices.callbacks.rows import entry_key
from app.notices.notice import NoNoticeError, entry, opened_events
from app.schemas.base import format_time
from app.service.context import Services
from lethe import canonical
from models import Callback, Delivery, ErasureRequest


class OverError(NoNoticeError):
    """The callback has ended: no further message follows."""


@dataclass(frozen=True, slots=True)
class CallbackMessage:
    """The message to post. state: the state it reports; final: no later state follows."""

    headers: Mapping[str, str]
    body: bytes
    state: str
    final: bool


# Builds the message of a delivery at a given time. Raises NoNoticeError if the log does not, or
# no longer, support it, and a LetheError if it cannot be built now.
Form = Callable[[Services, Callback, Delivery, datetime], CallbackMessage]


def of_request(
    services: Services, callback: Callback, delivery: Delivery, now: datetime
) -> CallbackMessage:
    """Return the message of a request's state, read from a signed entry of the log."""
    with services.reading() as session:
        state, at, data = _said(services, session, callback.request, int(delivery.about))
    said = {"type": events.STATE, "timestamp": at, "data": data}
    body = canonical.encode(said)
    headers = headers_of(entry_key(services), delivery.id, now, body)
    return CallbackMessage(headers, body, state, state in events.ENDS)


def _said(
    services: Services, session: Session, ref: str, index: int
) -> tuple[str, str, dict[str, object]]:
    request = session.exec(select(ErasureRequest).where(ErasureRequest.ref == ref)).first()
    if request is None or not request.event_key:
        raise OverError("retention ended")
    said = opened_events(services, session, request).get(index)
    leaf, _ = entry(services, session, index)
    state = events.STATES.get(leaf.event or "")
    if said is None or said.event != leaf.event or state is None:  # the leaf says which
        raise NoNoticeError("not as logged")
    data: dict[str, object] = {"ref": ref, "state": state, "log_index": index}
    if said.event == "request.certified":
        certificate, _ = entry(services, session, int(said.payload["certificate"]))
        data["certificate_sha256"] = certificate.digests["sha256"]
    return state, format_time(said.at), data


OWN: Final[Mapping[str, Form]] = MappingProxyType({REQUEST: of_request})
