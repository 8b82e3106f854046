"""An Authorized Agent of the Data Rights Protocol: pairing, two exercises, one is revoked.

What it signed lies beside the data folder: an agent that got no answer sends the same envelope
again. Several at once are one agent that sends twice.
"""

import json
import os
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from httpx2 import Response

from app.protocols.cases import AgentRequest
from app.protocols.drp import routes
from app.protocols.drp.agents import name_of
from app.protocols.drp.wire import PROTOCOL
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
from lethe.signing.keys import public_pem
from tests.installation import Installation

NAME, BUSINESS = "AN_AGENT", "A_BUSINESS"
SETTINGS: dict[str, Any] = {"drp_business_id": BUSINESS}
PAIRINGS = 8  # of one call: another process of the agent may pair meanwhile


def registered(made: Installation) -> None:
    """Register the agent's key, and have a model know both people."""
    name_both(made)
    key = {
        "keyid": NAME,
        "algorithm": "ed25519",
        "public_key": public_pem(_key().public_key()),
        "role": "agent",
    }
    answered(lambda: made.caller.operator("POST", "/v1/keys", json=key), 201)
    read_log(made)


def exercise_and_revoke(made: Installation, told: Told) -> None:
    """Exercise two deletions; revoke one, and follow the other to its end."""
    keep_calls(made, routes, _read)
    agent = Agent(made)
    stays = agent.exercise(told, STAYS)
    ended = agent.call("DELETE", f"/{stays}", agent.sealed({"reason": "changed my mind"}))
    if ended.json()["status"] == "revoked":
        told("agent-withdrew", _asked(stays))
    goes = agent.exercise(told, GOES)
    work(made, have_ended)
    if (said := agent.call("GET", f"/{goes}").json()["status"]) == "fulfilled":
        told("fulfilled", _asked(goes))
    call_back(made)
    if said != "fulfilled":
        raise StuckError(f"the request is {said}")


class Agent:
    """The agent in one process."""

    def __init__(self, made: Installation) -> None:
        self.made, self.token = made, ""

    def exercise(self, told: Told, email: str) -> str:
        """Ask for a person's deletion until it is answered; return the request's id."""
        said = self.call("POST", "", _signed_once(self.made, email)).json()
        told("exercised", _asked(said["request_id"]))
        return str(said["request_id"])

    def call(self, method: str, path: str, body: bytes = b"") -> Response:
        """Call with a token that counts, and return the answer."""

        def once() -> Response:
            headers = {"authorization": f"Bearer {self.token}", "content-type": "text/plain"}
            url = f"/drp/v1/data-rights-request{path}"
            return self.made.caller.http.request(method, url, headers=headers, content=body)

        for _ in range(PAIRINGS):
            answer = answered(once, 200, 401)
            if answer.status_code == 200:
                return answer
            self._pair()
        raise StuckError("its token is replaced each time")

    def sealed(self, said: dict[str, Any]) -> bytes:
        """Return the envelope of a message."""
        data = json.dumps(said).encode()
        return b64encode(_key().sign(data) + data)

    def _pair(self) -> None:
        """Get a token; a message pairs once, so each try signs its own."""
        url = f"/drp/v1/agent/{NAME}"
        http = self.made.caller.http
        answer = answered(lambda: http.post(url, content=self.sealed(_claims())), 200)
        self.token = answer.json()["token"]


def _asked(request: str) -> list[str]:
    return told_of(AgentRequest(PROTOCOL, name_of(NAME), request))


def _read(headers: Mapping[str, str], said: dict[str, Any]) -> tuple[str, str, str]:
    return headers["webhook-id"], said["request_id"], said["status"]


def _signed_once(made: Installation, email: str) -> bytes:
    """Return the envelope of an exercise, the same each time."""
    name = f"envelope-{sha256(email.encode()).hexdigest()[:8]}"
    path = made.settings.data_dir.parent / name
    if not path.exists():
        said = {
            **_claims(),
            "agent-request-id": email.partition("@")[0],
            "exercise": "deletion",
            "regime": "ccpa",
            "status_callback": CALLBACK,
            "email": email,
            "email_verified": True,
        }
        own = Path(f"{path}-{os.getpid()}")
        own.write_bytes(Agent(made).sealed(said))
        with suppress(FileExistsError):  # another process of the agent was first
            os.link(own, path)
        own.unlink()
    return path.read_bytes()


def _claims() -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "agent-id": NAME,
        "business-id": BUSINESS,
        "drp.version": "1.0",
        "issued-at": (now - timedelta(seconds=1)).isoformat(),
        "expires-at": (now + timedelta(minutes=9)).isoformat(),
    }


def _key() -> Ed25519PrivateKey:
    """Return the same key each time."""
    return Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
