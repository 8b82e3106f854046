"""The Data Rights Protocol: pairing, the order of the checks, exercises, statuses, replays."""

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text
from sqlmodel import Session, select

from app.api.http.rates import Rates
from app.ledger.guard import SigningGuard
from app.ledger.key_rows import key_rows
from app.service.desk import decisions
from lethe.signing.keys import public_pem
from models import (
    BearerToken,
    Case,
    ErasureRequest,
    RequesterKey,
    RequestEvent,
    UsedNonce,
)
from tests.app.api.test_requests import problem
from tests.app.protocols.conftest import BUSINESS
from tests.installation import Installation, make_token
from tests.workers.jobs.desk.test_people import ANN, BOB, EVE, named
from tests.workers.jobs.leases.test_deaths import set_ahead
from tests.workers.jobs.lineage.test_held_out import evaluated

# The first and the second group of the example of section 2.01.
EXAMPLE: dict[str, Any] = {
    "agent-request-id": "foo",
    "drp.version": "1.0",
    "exercise": "deletion",
    "regime": "ccpa",
    "relationships": ["customer", "marketing"],
    "name": "Ann Example",
    "email": ANN,
    "email_verified": True,
}


class Agent:
    """An Authorized Agent, registered by an operator unless told otherwise."""

    def __init__(self, installation: Installation, name: str = "AN_AGENT") -> None:
        self.installation, self.name = installation, name
        self.http = installation.caller.http
        self.key = Ed25519PrivateKey.generate()
        self.token = ""

    def register(self, **changes: Any) -> httpx2.Response:
        body = {
            "keyid": self.name,
            "algorithm": "ed25519",
            "public_key": public_pem(self.key.public_key()),
            "role": "agent",
        }
        return self.installation.caller.operator("POST", "/v1/keys", json=body | changes)

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = datetime.now(UTC)
        times = {
            "issued-at": now - timedelta(seconds=1),
            "expires-at": now + timedelta(minutes=5),
        }
        said = {"agent-id": self.name, "business-id": BUSINESS, "drp.version": "1.0"}
        return {**said, **{name: at.isoformat() for name, at in times.items()}, **changes}

    def sealed(self, said: Any, key: Ed25519PrivateKey | None = None) -> bytes:
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        return b64encode((key or self.key).sign(data) + data)

    def pair(self, body: bytes | None = None, path: str | None = None) -> httpx2.Response:
        sent = self.sealed(self.claims()) if body is None else body
        answer = self.http.post(f"/drp/v1/agent/{path or self.name}", content=sent)
        if answer.status_code == 200:
            self.token = answer.json()["token"]
        return answer

    def call(self, method: str, path: str = "", body: bytes = b"") -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "text/plain"}
        url = f"/drp/v1/data-rights-request{path}"
        return self.http.request(method, url, headers=headers, content=body)

    def exercise(self, **changes: Any) -> dict[str, Any]:
        answer = self.call("POST", body=self.sealed(self.claims(**EXAMPLE | changes)))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def status(self, request: str) -> dict[str, Any]:
        answer = self.call("GET", f"/{request}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
def agent(serving: Installation) -> Agent:
    made = Agent(serving)
    assert made.register().status_code == 201
    assert made.pair().status_code == 200
    return made


def refused(answer: httpx2.Response, status: int, word: str) -> None:
    """Insist on DRP's error."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["code"] == str(status)
    assert word in body["message"]
    assert ANN not in answer.text


def test_pairing_gives_a_token_that_is_good_for_nothing_else(agent: Agent) -> None:
    headers = {"authorization": f"Bearer {agent.token}"}
    known = agent.http.get("/drp/v1/agent/AN_AGENT", headers=headers)
    assert (known.status_code, known.json()) == (200, {})
    other = agent.http.get("/drp/v1/agent/ANOTHER", headers=headers)
    assert (other.status_code, other.content) == (403, b"")
    for path in ("/v1/requests", "/v1/keys", "/metrics"):
        problem(agent.http.get(path, headers=headers), 403, "scope-insufficient")
    assert agent.http.get("/drp/v1/agent/AN_AGENT").status_code == 401
    operator = {"authorization": f"Bearer {agent.installation.caller.token}"}
    assert agent.http.get("/drp/v1/agent/AN_AGENT", headers=operator).status_code == 403


def test_a_new_token_replaces_the_old(agent: Agent) -> None:
    old = agent.token
    assert agent.pair().status_code == 200
    assert agent.token != old
    agent.token = old
    refused(agent.call("GET", "/x"), 401, "revoked")


def test_pairings_are_counted_like_other_calls(agent: Agent) -> None:
    """Each leaves a row, and a line in the list of revoked tokens."""
    agent.http.app.state.rates = Rates(2)  # type: ignore[attr-defined]
    sent = agent.sealed(agent.claims())
    assert agent.pair(sent).status_code == 200
    assert [agent.pair(sent).status_code for _ in range(3)] == [403] * 3  # replays: not counted
    assert agent.pair().status_code == 200
    late = agent.pair()
    refused(late, 429, "calls")
    assert int(late.headers["retry-after"]) > 0
    with Session(agent.installation.services.engine) as session:
        tokens = session.exec(select(BearerToken).where(BearerToken.scope == "drp")).all()
    assert len(tokens) == 3
    assert agent.call("GET", "/x").status_code == 403  # its calls have a count of their own


@pytest.mark.parametrize(
    ("database_url", "slow"), [("sqlite", 0), ("postgresql", 1)], indirect=["database_url"]
)
def test_a_token_that_was_away_when_its_agent_paired_again_is_replaced_too(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    """Also if the machine that pairs it again is an hour slow."""
    old = agent.token
    digest = sha256(old.encode()).hexdigest()
    with agent.installation.services.engine.begin() as connection:
        query = text(f"SELECT * FROM bearer_tokens WHERE digest = '{digest}'")
        row = dict(connection.execute(query).mappings().one())
        connection.execute(text(f"DELETE FROM bearer_tokens WHERE digest = '{digest}'"))
    set_ahead(monkeypatch, timedelta(hours=-slow))
    assert agent.pair().status_code == 200
    with agent.installation.services.engine.begin() as connection:
        names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
        connection.execute(text(f"INSERT INTO bearer_tokens ({names}) VALUES ({values})"), row)
    headers = {"authorization": f"Bearer {agent.token}"}
    assert agent.http.get("/drp/v1/agent/AN_AGENT", headers=headers).status_code == 200
    agent.token = old
    refused(agent.call("GET", "/x"), 401, "revoked")


def test_pairing_fails_without_a_body(serving: Installation) -> None:
    agent = Agent(serving)
    assert agent.pair().status_code == 403  # not registered
    agent.register()
    message = agent.sealed(agent.claims())
    now = datetime.now(UTC)
    future, past = ((now + timedelta(minutes=m)).isoformat() for m in (4, -1))
    bad = {
        "not base64": b"?" + message,
        "empty": b"",
        "signed by another": agent.sealed(agent.claims(), Ed25519PrivateKey.generate()),
        "changed": b64encode(b64decode(message)[:-1] + b" "),
        "no object": agent.sealed([1]),
        "a name twice": agent.sealed(b'{"agent-id":"AN_AGENT","agent-id":"AN_AGENT"}'),
        "of another agent": agent.sealed(agent.claims(**{"agent-id": "ANOTHER"})),
        "for another business": agent.sealed(agent.claims(**{"business-id": "X"})),
        "not issued yet": agent.sealed(agent.claims(**{"issued-at": future})),
        "expired": agent.sealed(agent.claims(**{"expires-at": past})),
        "without a zone": agent.sealed(agent.claims(**{"expires-at": "2099-01-01T00:00:00"})),
        "for too long": agent.sealed(
            agent.claims(**{"expires-at": (now + timedelta(minutes=11)).isoformat()})
        ),
    }
    for name, body in bad.items():
        answer = agent.pair(body)
        assert (answer.status_code, answer.content) == (403, b""), name
    assert agent.pair(message, path="ANOTHER").status_code == 403
    assert agent.pair(message).status_code == 200
    assert agent.pair(message).status_code == 403  # whoever saw it gets no token


def test_an_agents_key_is_no_other_key(serving: Installation) -> None:
    agent = Agent(serving)
    assert agent.register(subject="ann").status_code == 422
    assert agent.register(role="requester").status_code == 201  # of a requester's role
    assert agent.pair().status_code == 403


def test_a_revoked_agent_is_unknown(agent: Agent) -> None:
    found = agent.exercise()
    revoked = agent.installation.caller.operator("DELETE", f"/v1/keys/{agent.name}")
    assert revoked.status_code == 200
    refused(agent.call("GET", f"/{found['request_id']}"), 403, "not registered")
    assert agent.pair().status_code == 403


def test_a_deletion_is_fulfilled_once_it_is_certified(agent: Agent) -> None:
    found = agent.exercise()
    assert found["status"] == "in_progress"
    assert found["agent_request_id"] == "foo"
    assert found.keys() == {
        "request_id", "received_at", "expected_by", "agent_request_id", "status",
    }  # fmt: skip
    with Session(agent.installation.services.engine) as session:
        case = session.exec(select(Case)).one()
        assert (case.regulation, case.opened_by) == ("ccpa", "drp:AN_AGENT")
    agent.installation.drain()
    done = agent.status(found["request_id"])
    assert done["status"] == "fulfilled"
    assert done["agent_request_id"] == "foo"
    late = agent.call("DELETE", f"/{found['request_id']}", agent.sealed({}))
    refused(late, 409, "closed")
    agent.installation.check()


def test_the_same_envelope_is_one_request(agent: Agent) -> None:
    body = agent.sealed(agent.claims(**EXAMPLE))
    first = agent.call("POST", body=body).json()
    size = agent.installation.services.ledger.latest().size
    again = agent.call("POST", "/", body + b"\n").json()
    assert again == first
    assert agent.installation.services.ledger.latest().size == size
    assert agent.exercise()["request_id"] != first["request_id"]  # signed anew, asked anew


def test_what_is_not_signed_yet_is_answered_once_it_is_sent_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no room")

    body = agent.sealed(agent.claims(**EXAMPLE))
    with monkeypatch.context() as failing:
        failing.setattr(SigningGuard, "advance", full)
        for _ in range(2):
            refused(agent.call("POST", body=body), 503, "send it again")
    found = agent.call("POST", body=body)
    assert found.status_code == 200, found.text
    path, message = f"/{found.json()['request_id']}", agent.sealed({"reason": "x"})
    with monkeypatch.context() as failing:
        failing.setattr(SigningGuard, "advance", full)
        for _ in range(2):
            refused(agent.call("DELETE", path, message), 503, "send it again")
    assert agent.call("DELETE", path, message).json()["status"] == "revoked"
    agent.installation.check()


def test_what_is_in_progress_can_be_revoked(agent: Agent) -> None:
    found = agent.exercise()
    refused(agent.call("DELETE", f"/{found['request_id']}"), 403, "signed")
    other = agent.sealed({"reason": "x"}, Ed25519PrivateKey.generate())
    refused(agent.call("DELETE", f"/{found['request_id']}", other), 403, "signed")
    reason = agent.sealed({"reason": f"I, {ANN}, changed my mind"})
    for _ in range(2):
        answer = agent.call("DELETE", f"/{found['request_id']}", reason)
        assert answer.status_code == 200, answer.text
        assert answer.json()["status"] == "revoked"
    with Session(agent.installation.services.engine) as session:
        payloads = [str(one.payload) for one in session.exec(select(RequestEvent))]
    assert payloads
    assert not any(ANN in one or "mind" in one for one in payloads)
    agent.installation.drain()
    assert agent.status(found["request_id"])["status"] == "revoked"


def test_an_exercise_gives_no_token_and_withdraws_nothing(agent: Agent) -> None:
    envelope = agent.sealed(agent.claims(**EXAMPLE))
    request = agent.call("POST", body=envelope).json()["request_id"]
    stolen = agent.http.post("/drp/v1/agent/AN_AGENT", content=envelope)
    assert (stolen.status_code, stolen.content) == (403, b"")
    refused(agent.call("DELETE", f"/{request}", envelope), 400, "exercise")
    assert agent.status(request)["status"] == "in_progress"  # with the token it had


def test_a_message_has_one_purpose(agent: Agent) -> None:
    request = agent.exercise()["request_id"]
    assert agent.pair(agent.sealed(agent.claims(reason="x"))).status_code == 403
    pairing = agent.sealed(agent.claims())
    assert agent.pair(pairing).status_code == 200
    refused(agent.call("DELETE", f"/{request}", pairing), 400, "used before")
    withdrawing = agent.sealed(agent.claims(agent_request_id="foo"))
    assert agent.call("DELETE", f"/{request}", withdrawing).status_code == 200
    other = agent.exercise()["request_id"]
    refused(agent.call("DELETE", f"/{other}", withdrawing), 400, "used before")
    with Session(agent.installation.services.engine) as session:
        spent = [
            one.nonce for one in session.exec(select(UsedNonce)) if one.keyid == agent.name
        ]
    assert len(spent) == len(set(spent)) == 5  # two of pairing, two exercises, one withdrawal


def test_a_withdrawal_that_has_claims_is_checked_by_them(agent: Agent) -> None:
    request = agent.exercise()["request_id"]
    old = {"issued-at": "2020-01-01T00:00:00Z", "expires-at": "2020-01-01T00:05:00Z"}
    for changes, status, word in (
        ({"agent-id": "ANOTHER"}, 403, "agent-id"),
        ({"business-id": "ANOTHER"}, 403, "business-id"),
        (old, 400, "expires-at"),
    ):
        body = agent.sealed(agent.claims(**changes))
        refused(agent.call("DELETE", f"/{request}", body), status, word)
    some = agent.sealed({"agent-id": agent.name, "business-id": BUSINESS})
    refused(agent.call("DELETE", f"/{request}", some), 400, "issued-at")
    assert agent.status(request)["status"] == "in_progress"


def test_rows_held_out_at_their_source_are_not_fulfilled(serving: Installation) -> None:
    arrays = named(r99=EVE)
    assert serving.caller.register_model(arrays, ref="held").status_code == 201
    serving.drain()
    agent = Agent(serving)
    agent.register()
    agent.pair()
    said = agent.exercise(email=EVE)
    assert (said["status"], said["reason"]) == ("denied", "claim_not_covered")
    assert "source" in said["processing_details"]


def test_stored_held_out_rows_are_fulfilled_once_removed(serving: Installation) -> None:
    answer = serving.caller.register_model(evaluated(named()), ref="held", decide="review")
    assert answer.status_code == 201
    serving.drain()
    agent = Agent(serving)
    agent.register()
    agent.pair()
    assert agent.exercise(email=EVE)["status"] == "fulfilled"


def test_pairing_revokes_no_token_of_another_scope(serving: Installation) -> None:
    agent = Agent(serving)
    agent.register()
    operator = make_token(serving.services)
    digest = sha256(operator.encode()).hexdigest()
    with Session(serving.services.engine) as session:  # as if the name were not reserved
        row = session.exec(select(BearerToken).where(BearerToken.digest == digest)).one()
        row.name = "drp:AN_AGENT"
        key_rows(session).seal(row)
        session.add(row)
        session.commit()
    assert agent.pair().status_code == 403
    headers = {"authorization": f"Bearer {operator}"}
    assert serving.caller.http.get("/v1/models", headers=headers).status_code == 200


# What is asked for otherwise than in the example, and the reason of the denial.
DENIED: list[tuple[dict[str, Any], str]] = [
    ({"exercise": "sale:opt-out"}, "claim_not_covered"),
    ({"exercise": "sale:opt_in"}, "claim_not_covered"),
    ({"exercise": "access"}, "claim_not_covered"),
    ({"exercise": "access:specific"}, "claim_not_covered"),
    ({"regime": "gdpr"}, "outside_jurisdiction"),
    ({"email_verified": False}, "insuf_verification"),
    ({"email": None}, "insuf_verification"),
    ({"email": None, "phone_number": "+14155559317"}, "insuf_verification"),
    ({"email": "\u0000"}, "insuf_verification"),
    ({"email": "nobody@example.org"}, "no_match"),
]


def test_what_is_denied_has_the_protocols_reason(agent: Agent) -> None:
    for changes, reason in DENIED:
        found = agent.exercise(**changes)
        assert (found["status"], found["reason"]) == ("denied", reason), changes
        assert found["agent_request_id"] == "foo"
    with Session(agent.installation.services.engine) as session:
        assert session.exec(select(ErasureRequest)).all() == []


def test_a_request_without_a_regime_or_an_id_is_taken(agent: Agent) -> None:
    said = {name: value for name, value in EXAMPLE.items() if "id" not in name}
    del said["regime"]
    answer = agent.call("POST", body=agent.sealed(agent.claims(**said)))
    assert answer.json()["status"] == "in_progress"
    assert "agent_request_id" not in answer.json()


def test_an_unverified_claim_beside_a_verified_one_does_not_count(agent: Agent) -> None:
    agent.exercise(
        email=BOB, email_verified=False, phone_number="+1 415", phone_number_verified=True
    )
    with Session(agent.installation.services.engine) as session:
        (case,) = session.exec(select(Case)).all()
        assert {part["found"] for part in case.parts} == {"nothing"}


def test_an_extension_is_told_of_the_agents_own_request_alone(agent: Agent) -> None:
    """The second request follows the first, and has a deadline of its own."""
    first, second = agent.exercise(), agent.exercise()
    caller = agent.installation.caller
    with Session(agent.installation.services.engine) as session:
        request = session.exec(select(ErasureRequest)).one()
    body = {"reason": "necessary"}
    answer = caller.operator("POST", f"/v1/cases/{request.ref}/extend", json=body)
    assert answer.status_code == 200, answer.text
    own, other = (agent.status(one["request_id"]) for one in (first, second))
    assert "was extended" in own["processing_details"]
    assert own["expected_by"] > first["expected_by"]
    assert "processing_details" not in other
    assert other["expected_by"] == second["expected_by"]


def test_a_refusal_is_denied_with_its_reason(agent: Agent) -> None:
    caller = agent.installation.caller
    assert caller.register_model(named(), ref="held", decide="review").status_code == 201
    agent.installation.drain()
    seen: set[str] = set()
    for code, reason in (
        ("not-verified", "insuf_verification"),
        ("speech", "claim_not_covered"),
    ):
        found = agent.exercise()
        with Session(agent.installation.services.engine) as session:
            (ref,) = set(session.exec(select(Case.ref))) - seen
        seen.add(ref)
        agent.installation.drain()
        assert agent.status(found["request_id"])["status"] == "in_progress"
        decisions.refuse(agent.installation.services, ref, "an officer", code)
        status = agent.status(found["request_id"])
        assert (status["status"], status["reason"]) == ("denied", reason)


# What is said otherwise than in the example: of two wrong claims the first one is named.
CHECKS: list[tuple[dict[str, Any], int, str]] = [
    ({"agent-id": "ANOTHER", "business-id": "X"}, 403, "agent-id"),
    ({"business-id": "X", "issued-at": "2099-01-01T00:00:00Z"}, 403, "business-id"),
    ({"issued-at": "2099-01-01T00:00:00Z", "expires-at": "2020-01-01T00:00:00Z"}, 400, "issued-at"),
    ({"expires-at": "2020-01-01T00:00:00Z", "exercise": "x"}, 400, "expires-at"),
    ({"expires-at": "2099-01-01T00:00:00Z"}, 400, "10 minutes"),
    ({"issued-at": 7}, 400, "issued-at"),
    ({"exercise": "forget"}, 400, "exercise"),
    ({"drp.version": "0.5"}, 400, "drp.version"),
    ({"email_verified": "true"}, 400, "email_verified"),
    ({"agent-request-id": "a\u0007"}, 400, "agent-request-id"),
    ({"status_callback": "https://10.1.2.3/x"}, 400, "status_callback"),
]  # fmt: skip


def test_the_checks_come_in_their_order(agent: Agent) -> None:
    size = agent.installation.services.ledger.latest().size
    for changes, status, word in CHECKS:
        body = agent.sealed(agent.claims(**EXAMPLE | changes))
        answer = agent.call("POST", body=body)
        refused(answer, status, word)
        assert answer.json()["fatal"] is True
        other = agent.sealed(agent.claims(**EXAMPLE | changes), Ed25519PrivateKey.generate())
        refused(agent.call("POST", body=other), 403, "signed")
        refused(agent.call("POST", body=b"*" + other), 400, "base64")
    assert agent.installation.services.ledger.latest().size == size


def test_agents_see_their_own_requests_alone(agent: Agent) -> None:
    other = Agent(agent.installation, "ANOTHER")
    assert other.register().status_code == 201
    assert other.pair().status_code == 200
    found = agent.exercise()
    refused(other.call("GET", f"/{found['request_id']}"), 403, "no request")
    signed = other.sealed({})
    refused(other.call("DELETE", f"/{found['request_id']}", signed), 403, "no request")
    stolen = agent.sealed(agent.claims(**EXAMPLE))
    refused(other.call("POST", body=stolen), 403, "signed")
    agent.token = make_token(agent.installation.services, "agent")
    refused(agent.call("GET", f"/{found['request_id']}"), 403, "scope")


def test_it_is_off_unless_it_is_configured(ready: Installation) -> None:
    problem(ready.caller.http.get("/drp/v1/agent/X"), 404, "not-found")
    problem(
        ready.caller.http.post("/drp/v1/data-rights-request", content=b"x"), 404, "not-found"
    )


def test_who_registered_an_agents_key_does_not_approve_what_it_asks_for(
    serving: Installation, agent: Agent
) -> None:
    model = serving.caller.register_model(named(), ref="reviewed", decide="review")
    assert model.status_code == 201
    serving.drain()
    agent.exercise()
    with Session(serving.services.engine) as session:
        ref = session.exec(select(Case.ref)).one()
        query = select(RequestEvent).where(RequestEvent.event == "request.on-behalf")
        said = session.exec(query).first()
        assert said is not None
        assert said.payload["registration"] == session.get_one(RequesterKey, agent.name).ref
    path = f"/v1/cases/{ref}/approve"
    assert serving.caller.operator("POST", path).status_code == 403
    second = replace(serving.caller, token=make_token(serving.services))
    assert second.operator("POST", path).status_code == 200
    serving.drain()
    serving.check()
