"""An Authorized Agent of the Data Rights Protocol: pairing, two exercises, one is revoked.

What it signed, and what it was called back with, lies beside the data folder: an agent that
got no answer sends the same envelope again. Several at once are one agent that sends twice.
"""

import json
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from httpx2 import Response
from sqlmodel import Session, col, func, select

from app.notices import post as sending
from app.notices.events import WAITING
from app.notices.post import Answer
from app.notices.sender import Sender
from app.protocols.cases import AgentRequest
from app.protocols.drp import routes
from app.protocols.drp.agents import name_of
from app.protocols.drp.wire import PROTOCOL
from app.protocols.forms import FORMS
from app.settings import Settings
from benchmarks.faults import background, officers
from benchmarks.faults.clients import answered
from benchmarks.faults.workload import StuckError, Told, tried, work
from lethe.identity import digests
from lethe.signing.keys import public_pem
from models import Case, Delivery, ErasureRequest, LogEntry
from tests.installation import Installation
from tests.small import MODEL

NAME, BUSINESS = "AN_AGENT", "A_BUSINESS"
SETTINGS: dict[str, Any] = {"drp_business_id": BUSINESS}
STAYS, GOES = "bob@example.org", "ann@example.org"  # whose request is revoked, and fulfilled
RECORDS = ("r5", "r6")  # of who stays; the others are officers.RECORDS
CALLBACK, CALLS = "https://agent.example/status", "calls"
TURNS = 8  # of a sender; the notices of one agent are sent one after the other
PAIRINGS = 8  # of one call: another process of the agent may pair meanwhile


def registered(made: Installation) -> None:
    """Register the agent's key, and have a model know both people."""
    officers.name(made)
    person = {"kind": "email", "sha256": digests("email", STAYS)["sha256"].hex()}
    named = [{"record": record, "person": person} for record in RECORDS]
    body: dict[str, Any] = {"model": MODEL, "identities": named}
    answered(lambda: made.caller.operator("POST", "/v1/people/import", json=body), 200)
    key = {
        "keyid": NAME,
        "algorithm": "ed25519",
        "public_key": public_pem(_key().public_key()),
        "role": "agent",
    }
    answered(lambda: made.caller.operator("POST", "/v1/keys", json=key), 201)
    Sender(made.services, FORMS).turn()  # the log so far is nobody's news


def exercise_and_revoke(made: Installation, told: Told) -> None:
    """Exercise two deletions; revoke one, and follow the other to its end."""
    _reach_without_network(made)
    agent = Agent(made)
    stays = agent.exercise(told, STAYS)
    ended = agent.call("DELETE", f"/{stays}", agent.sealed({"reason": "changed my mind"}))
    if ended.json()["status"] == "revoked":
        told("agent-revoked", stays)
    goes = agent.exercise(told, GOES)
    work(made, have_ended)
    if (said := agent.call("GET", f"/{goes}").json()["status"]) == "fulfilled":
        told("fulfilled", goes)
    tried(lambda: _call_back(made))
    if said != "fulfilled":
        raise StuckError(f"the request is {said}")


def have_ended(session: Session) -> bool:
    """Return whether one request is withdrawn, and one certified."""
    states = session.exec(select(ErasureRequest.state)).all()
    return sorted(states) == ["certified", "withdrawn"]


class Agent:
    """The agent in one process."""

    def __init__(self, made: Installation) -> None:
        self.made, self.token = made, ""

    def exercise(self, told: Told, email: str) -> str:
        """Ask for a person's deletion until it is answered; return the request's id."""
        said = self.call("POST", "", _signed_once(self.made, email)).json()
        told("exercised", said["request_id"])
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


def _call_back(made: Installation) -> None:
    """Send what is due to the agent's address, as a thread of the worker does."""
    for _ in range(TURNS):
        background.end_waits(made)
        Sender(made.services, FORMS).turn()
        with made.services.reading() as session:
            if WAITING not in session.exec(select(Delivery.state)).all():
                return
    raise StuckError("a callback was not delivered")


def why_unasked(session: Session, settings: Settings, request: str) -> str | None:
    """Return what is missing of an exercise that was answered."""
    case = session.get(Case, _ref(request))
    if case is None or not case.parts:
        return f"the case of {request} is not stored"
    refs = {part["request_ref"] for part in case.parts if part.get("request_ref")}
    asked = select(LogEntry.ref).where(
        LogEntry.event == "request.received", col(LogEntry.ref).in_(refs)
    )
    if not refs or set(session.exec(asked)) != refs:
        return f"the log has no request for the case of {request}"
    if not {"revoked", "fulfilled"} & {
        state for _, one, state in _called(settings) if one == request
    }:
        return f"nobody was called back with the end of {request}"
    return None


def why_not(session: Session, request: str, state: str) -> str | None:
    """Return why the request of an exercise is not in the state that the agent was told."""
    case = session.get(Case, _ref(request))
    states = set() if case is None else _states(session, case)
    return None if states == {state} else f"the requests of {request} are {states}"


def doubled(session: Session, settings: Settings) -> list[str]:
    """Return cases without an envelope of their own, and states told under two ids."""
    number = session.exec(select(func.count()).select_from(Case)).one()
    found = [f"{number} cases began of 2 envelopes"] if number > 2 else []
    for (request, state), ids in Counter(
        (request, state) for _, request, state in set(_called(settings))
    ).items():
        if ids > 1:
            found.append(f"{ids} notices said that {request} is {state}")
    return found


def _called(settings: Settings) -> list[tuple[str, str, str]]:
    """Return what the agent was called back with: the notice's id, the request, its state."""
    path = settings.data_dir.parent / CALLS
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def _states(session: Session, case: Case) -> set[str]:
    named = [part["request"] for part in case.parts if part.get("request")]
    query = select(ErasureRequest.state).where(col(ErasureRequest.id).in_(named))
    return set(session.exec(query))


def _ref(request: str) -> str:
    return AgentRequest(PROTOCOL, name_of(NAME), request).ref(1, 0)


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


def _reach_without_network(made: Installation) -> None:
    """Have the agent's address be a public one, and it keep what it is called back with."""
    path = made.settings.data_dir.parent / CALLS

    def post(_: Any, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        said = json.loads(body)
        named = {name.lower(): value for name, value in headers.items()}
        line = json.dumps([named["webhook-id"], said["request_id"], said["status"]])
        with path.open("a") as calls:
            calls.write(f"{line}\n")
        return Answer(204, 0)

    vars(routes).update(check_urls=lambda *_: None)
    vars(sending).update(post=post)
