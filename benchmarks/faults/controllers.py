"""A controller of OpenDSR: two requests with a callback; one is cancelled, one is completed.

The controller sends the same bodies again. Several at once are one controller that sends twice.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from httpx2 import Response

from app.protocols.cases import AgentRequest
from app.protocols.opendsr import routes
from app.protocols.opendsr.wire import PROTOCOL
from benchmarks.faults.called_back import (
    CALLBACK,
    GOES,
    STAYS,
    call_back,
    have_ended,
    keep_calls,
    name_both,
    read_log,
    told_of,
)
from benchmarks.faults.clients import answered
from benchmarks.faults.workload import StuckError, Told, work
from tests.app.protocols.conftest import DOMAIN, write_processor
from tests.installation import Installation, make_token

NAME, TOKEN = "a-controller", "controller.token"  # the file is in the data folder
SETTINGS: dict[str, Any] = {"opendsr_domain": DOMAIN}
IDS = {
    STAYS: "a7551968-d5d6-44b2-9831-815ac9017798",
    GOES: "b8662079-e6e7-45c3-8942-926bda128809",
}


def certify(keys: Path) -> None:
    """Put the processor's certificate and key where a service of OpenDSR reads them."""
    write_processor(keys, generate_private_key(65537, 2048))


def registered(made: Installation) -> None:
    """Give the controller its token, and have a model know both people."""
    name_both(made)
    (made.settings.data_dir / TOKEN).write_text(make_token(made.services, "agent", NAME))
    read_log(made)


def ask_and_cancel(made: Installation, told: Told) -> None:
    """Send two requests; cancel one, and follow the other to its end."""
    keep_calls(made, routes, _read)
    controller = Controller(made)
    stays, goes = controller.ask(told, STAYS), IDS[GOES]
    controller.call("DELETE", f"/{stays}", 202)
    told("agent-withdrew", _asked(stays))
    controller.ask(told, GOES)
    work(made, have_ended)
    if (said := controller.call("GET", f"/{goes}", 200)["request_status"]) == "completed":
        told("fulfilled", _asked(goes))
    call_back(made)
    if said != "completed":
        raise StuckError(f"the request is {said}")


class Controller:
    """The controller in one process."""

    def __init__(self, made: Installation) -> None:
        self.http = made.caller.http
        self.token = (made.settings.data_dir / TOKEN).read_text()

    def ask(self, told: Told, email: str) -> str:
        """Ask for a person's erasure until it is answered; return the request's id."""
        wanted = {
            "regulation": "gdpr",
            "subject_request_id": IDS[email],
            "subject_request_type": "erasure",
            "submitted_time": "2026-10-02T15:00:00Z",
            "subject_identities": [
                {"identity_type": "email", "identity_value": email, "identity_format": "raw"}
            ],
            "api_version": "2.0",
            "status_callback_urls": [CALLBACK],
        }
        self.call("POST", "", 201, json.dumps(wanted).encode())
        told("exercised", _asked(IDS[email]))
        return IDS[email]

    def call(self, method: str, path: str, good: int, body: bytes = b"") -> dict[str, Any]:
        """Call until the answer has this status; return its body."""

        def once() -> Response:
            headers = {"authorization": f"Bearer {self.token}"}
            url = f"/dsr/requests{path}"
            return self.http.request(method, url, headers=headers, content=body)

        found: dict[str, Any] = answered(once, good).json()
        return found


def _asked(request: str) -> list[str]:
    return told_of(AgentRequest(PROTOCOL, NAME, request))


def _read(_: Mapping[str, str], said: dict[str, Any]) -> tuple[str, str, str]:
    return "", said["subject_request_id"], said["request_status"]  # OpenDSR gives calls no id
