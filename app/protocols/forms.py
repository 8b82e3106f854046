"""The callbacks of the protocols: the current status, as in the answer of its route.

A worker's sender uses them, so this module does not depend on the web application.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from app.notices.callbacks import form
from app.notices.callbacks.form import CallbackMessage, Form, OverError
from app.notices.callbacks.key import headers_of
from app.notices.callbacks.rows import entry_key
from app.notices.notice import NoNoticeError
from app.problems import ConflictError, DrpAgentError, NotFoundError
from app.protocols.cases import AgentRequest, show_all, ticket_of_all
from app.protocols.drp import wire as drp
from app.protocols.drp.agents import SCOPE, key_of, name_of
from app.protocols.opendsr import wire
from app.protocols.opendsr.processor import load_processor
from app.schemas.base import format_time
from app.schemas.people import CaseView
from app.service.access.tokens import settled_token
from app.service.context import Services
from app.settings import SettingsError
from models import Callback, Delivery


def of_opendsr(
    services: Services, callback: Callback, delivery: Delivery, now: datetime
) -> CallbackMessage:
    """Return the callback of OpenDSR (section 8.6), signed with the processor's key.

    Raises:
        SettingsError: OpenDSR is off here, or certificate or key is missing.
        What `_views` raises.
    """
    if (processor := load_processor(services.settings)) is None:
        raise SettingsError("LETHE_OPENDSR_DOMAIN is not set where callbacks are sent")
    views = _views(services, callback)
    state = wire.status_of(views)
    said = {
        "controller_id": callback.owner,
        "expected_completion_time": format_time(wire.due_of(views)),
        "status_callback_url": callback.url,
        "subject_request_id": callback.request,
        "request_status": state,
    }
    body = json.dumps(said).encode()
    return CallbackMessage(processor.headers(body), body, state, state in wire.FINAL)


def of_drp(
    services: Services, callback: Callback, delivery: Delivery, now: datetime
) -> CallbackMessage:
    """Return the Exercise Status (section 2.03 of the Data Rights Protocol).

    The protocol defines no signature for it, so we add the headers of Standard Webhooks.

    Raises what `_views` raises.
    """
    views = _views(services, callback)
    document = drp.status_of(callback.request, views, ticket_of_all(services, _asked(callback)))
    body, state = json.dumps(document).encode(), document["status"]
    headers = headers_of(entry_key(services), delivery.id, now, body)
    return CallbackMessage(headers, body, state, state in drp.FINAL)


def _asked(callback: Callback) -> AgentRequest:
    return AgentRequest(callback.kind, callback.owner, callback.request)


def _views(services: Services, callback: Callback) -> list[CaseView]:
    """Return an agent's cases, checked against the log.

    Raises OverError: the agent's token or key was revoked, or the request's retention has
    ended; BusyError: its token is being replaced, as each pairing does; PeopleChangedError:
    tables and log disagree.
    """
    with services.reading() as session:
        token = settled_token(session, callback.owner)
        if token is None or token.scope not in ("agent", SCOPE):
            raise OverError("token revoked")
        if token.scope == SCOPE:
            try:
                key_of(session, callback.owner.removeprefix(name_of("")))
            except DrpAgentError:
                raise OverError("key revoked") from None
    try:
        return show_all(services, _asked(callback))
    except NotFoundError:
        raise NoNoticeError("no such request") from None
    except ConflictError:
        raise OverError("retention ended") from None


FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {**form.OWN, wire.PROTOCOL: of_opendsr, drp.PROTOCOL: of_drp}
)
