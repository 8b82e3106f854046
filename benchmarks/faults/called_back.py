"""What agents and controllers are called back with, and what must hold of their requests.

Their calls lie beside the data folder, where each process of a case adds to them.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

from sqlmodel import Session, col, func, select

from app.notices import post as sending
from app.notices.events import WAITING
from app.notices.post import Answer
from app.notices.sender import Sender
from app.protocols.cases import AgentRequest
from app.protocols.forms import FORMS
from app.settings import Settings
from benchmarks.faults import background, officers
from benchmarks.faults.clients import answered
from benchmarks.faults.workload import StuckError, tried
from lethe.identity import digests
from models import Case, Delivery, ErasureRequest, LogEntry
from tests.installation import Installation
from tests.small import MODEL

STAYS, GOES = "bob@example.org", "ann@example.org"  # whose request is withdrawn, and fulfilled
RECORDS = ("r5", "r6")  # of who stays; the others are officers.RECORDS
CALLBACK, CALLS = "https://agent.example/status", "calls"
TURNS = 8  # of a sender; the notices of one agent are sent one after the other
ENDS = {"revoked", "fulfilled", "cancelled", "completed"}


def name_both(made: Installation) -> None:
    """Say whose the records of both people are."""
    officers.name(made)
    person = {"kind": "email", "sha256": digests("email", STAYS)["sha256"].hex()}
    named = [{"record": record, "person": person} for record in RECORDS]
    body: dict[str, Any] = {"model": MODEL, "identities": named}
    answered(lambda: made.caller.operator("POST", "/v1/people/import", json=body), 200)


def read_log(made: Installation) -> None:
    """Have a sender read the log so far: it is nobody's news."""
    Sender(made.services, FORMS).turn()


def told_of(asked: AgentRequest) -> list[str]:
    """Return a request as a pipe carries it."""
    return list(astuple(asked))


def keep_calls(
    made: Installation,
    routes: Any,
    read: Callable[[Mapping[str, str], dict[str, Any]], tuple[str, str, str]],
) -> None:
    """Have CALLBACK be a public address, which keeps what it is called back with.

    routes: the module that checks addresses. read: returns the notice's id, the request and its
    state, of the headers (in lower case) and the body of a call.
    """
    path = made.settings.data_dir.parent / CALLS

    def post(_: Any, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        named = {name.lower(): value for name, value in headers.items()}
        line = json.dumps(read(named, json.loads(body)))
        with path.open("a") as calls:
            calls.write(f"{line}\n")
        return Answer(204, 0)

    vars(routes).update(check_urls=lambda *_: None)
    vars(sending).update(post=post)


def call_back(made: Installation) -> None:
    """Send what is due, as a thread of the worker does. Raises StuckError."""
    tried(lambda: _send(made))


def _send(made: Installation) -> None:
    for _ in range(TURNS):
        background.end_waits(made)
        Sender(made.services, FORMS).turn()
        with made.services.reading() as session:
            if WAITING not in session.exec(select(Delivery.state)).all():
                return
    raise StuckError("a callback was not delivered")


def have_ended(session: Session) -> bool:
    """Return whether one request is withdrawn, and one certified."""
    states = session.exec(select(ErasureRequest.state)).all()
    return sorted(states) == ["certified", "withdrawn"]


def why_unasked(session: Session, settings: Settings, told: list[str]) -> str | None:
    """Return what is missing of a request that was answered."""
    asked = AgentRequest(*told)
    case = session.get(Case, asked.ref(1, 0))
    if case is None or not case.parts:
        return f"the case of {asked.request} is not stored"
    refs = {part["request_ref"] for part in case.parts if part.get("request_ref")}
    logged = select(LogEntry.ref).where(
        LogEntry.event == "request.received", col(LogEntry.ref).in_(refs)
    )
    if not refs or set(session.exec(logged)) != refs:
        return f"the log has no request for the case of {asked.request}"
    if not ENDS & {state for _, one, state in _called(settings) if one == asked.request}:
        return f"nobody was called back with the end of {asked.request}"
    return None


def why_not(session: Session, told: list[str], state: str) -> str | None:
    """Return why a request is not in the state that its sender was told."""
    asked = AgentRequest(*told)
    case = session.get(Case, asked.ref(1, 0))
    states = set() if case is None else _states(session, case)
    return None if states == {state} else f"the requests of {asked.request} are {states}"


def doubled(session: Session, settings: Settings) -> list[str]:
    """Return cases without a request of their own, and states told under two ids."""
    number = session.exec(select(func.count()).select_from(Case)).one()
    found = [f"{number} cases began of 2 envelopes"] if number > 2 else []
    for (request, state), ids in Counter(
        (request, state) for _, request, state in set(_called(settings))
    ).items():
        if ids > 1:
            found.append(f"{ids} notices said that {request} is {state}")
    return found


def _called(settings: Settings) -> list[tuple[str, str, str]]:
    path = settings.data_dir.parent / CALLS
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def _states(session: Session, case: Case) -> set[str]:
    named = [part["request"] for part in case.parts if part.get("request")]
    query = select(ErasureRequest.state).where(col(ErasureRequest.id).in_(named))
    return set(session.exec(query))
