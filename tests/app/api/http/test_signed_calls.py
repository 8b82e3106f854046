"""What every signed call has in common: nonces spent once, roles, and one answer for bad keys."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from httpx2 import Response
from sqlmodel import Session, select

from app.ledger import lock
from app.service import admission
from lethe.signing.errors import SignatureReplayedError
from lethe.signing.http import MAX_WINDOW, SignedBy, sign_request
from lethe.signing.keys import generate_key
from models import UsedNonce
from models.database.types import clock
from tests.app.api.test_requests import problem
from tests.installation import Installation, answer_errors
from tests.small import MODEL, Caller, pack, rows
from workers.jobs import sweep

NONCE = "n" * 24
ERASE = json.dumps({"model": MODEL, "scope": {"level": "sample", "records": ["r1"]}}).encode()


def of_role(ready: Installation, role: str, **bound: str) -> Caller:
    caller = Caller(ready.caller.http, ready.caller.token, keyid=f"some-{role}")
    assert caller.register_key(role=role, **bound).status_code == 201
    return caller


@pytest.mark.parametrize(
    ("body", "slug"),
    [
        (b"{", "body-invalid"),
        (ERASE.replace(b"r1", b"nobody"), "record-unknown"),
        (ERASE.replace(b'"small"', b'"other"'), "model-unknown"),
    ],
)
def test_a_refused_call_has_spent_its_nonce(
    ready: Installation, body: bytes, slug: str
) -> None:
    refused = ready.caller.signed("POST", "/v1/requests", body, nonce=NONCE)
    problem(refused, refused.status_code, slug)
    again = ready.caller.signed("POST", "/v1/requests", ERASE, nonce=NONCE)
    problem(again, 401, "signature-replayed")


def test_the_nonce_is_spent_before_the_body_is_read(ready: Installation) -> None:
    caller = ready.caller
    headers = {"content-type": "application/json"}
    headers |= sign_request(
        "POST",
        f"{caller.http.base_url}/v1/requests",
        headers,
        ERASE,
        caller.key,
        caller.keyid,
        now=datetime.now(UTC),
        nonce=NONCE,
    )
    other = caller.http.post("/v1/requests", content=b"{}", headers=headers)
    problem(other, 400, "digest-mismatch")
    meant = caller.http.post("/v1/requests", content=ERASE, headers=headers)
    problem(meant, 401, "signature-replayed")


def test_an_invalid_signature_spends_nothing(ready: Installation) -> None:
    impostor = Caller(ready.caller.http, ready.caller.token, key=generate_key("ed25519"))
    problem(impostor.erase_records("r1", nonce=NONCE), 401, "signature-invalid")
    assert ready.caller.erase_records("r1", nonce=NONCE).status_code == 202


def test_of_the_same_nonce_at_once_one_is_taken(ready: Installation) -> None:
    now = datetime.now(UTC)
    book = ready.services.nonces

    def spend(number: int) -> bool:
        expires = now + timedelta(minutes=5)
        signed = SignedBy("alice", f"{number % 4:024}", now, expires, frozenset())
        try:
            book.spend(signed)
        except SignatureReplayedError:
            return False
        return True

    with Session(ready.services.engine) as session:
        before = len(session.exec(select(UsedNonce)).all())
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(spend, range(64)))
    assert sum(taken) == 4
    with Session(ready.services.engine) as session:
        assert len(session.exec(select(UsedNonce)).all()) == before + 4


def test_a_nonce_that_cannot_be_stored_is_not_taken_as_spent(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(admission, "insertion_of_nonces", full)
        answer_errors(ready.caller.http)
        assert ready.caller.erase_records("r1", nonce=NONCE).status_code == 500
    assert ready.caller.erase_records("r1", nonce=NONCE).status_code == 202


def calls(caller: Caller, role: str) -> list[Response]:
    """Send every signed call of a role."""
    nobody = "00000000-0000-0000-0000-000000000000"
    if role == "requester":
        return [
            caller.signed("POST", "/v1/requests", ERASE),
            caller.signed("POST", "/v1/requests/preview", ERASE),
            caller.signed("DELETE", f"/v1/requests/{nobody}"),
        ]
    data = pack(rows(count=1, first=101))
    npz = "application/x-npz"
    return [
        caller.signed("GET", f"/v1/models/{MODEL}/manifest"),
        caller.signed("POST", f"/v1/models/{MODEL}/contributions", data, content_type=npz),
        caller.signed("GET", "/v1/releases/asked"),
        caller.signed("POST", f"/v1/releases/{nobody}/answer", data, content_type=npz),
        caller.signed("GET", "/v1/rounds/asked"),
        caller.signed("GET", f"/v1/rounds/{nobody}/work"),
        caller.signed("PUT", f"/v1/rounds/{nobody}/messages/share", b"{}"),
    ]


@pytest.mark.parametrize(("role", "other"), [("requester", "client"), ("client", "requester")])
def test_each_signed_call_is_for_one_role(ready: Installation, role: str, other: str) -> None:
    wrong, right = of_role(ready, other, client="c1"), of_role(ready, role, client="c1")
    for response in calls(wrong, role):
        assert "role" in problem(response, 403, "key-not-entitled")["detail"]
    for response in calls(right, role):
        assert response.status_code != 403, response.text


@pytest.mark.parametrize(
    ("role", "path"), [("client", "/v1/requests"), ("requester", "/v1/releases/asked")]
)
def test_a_call_of_the_wrong_role_has_spent_its_nonce(
    ready: Installation, role: str, path: str
) -> None:
    wrong = of_role(ready, role, client="c1")
    for status, slug in ((403, "key-not-entitled"), (401, "signature-replayed")):
        if path == "/v1/requests":
            answer = wrong.signed("POST", path, ERASE, nonce=NONCE)
        else:
            answer = wrong.signed("GET", path, nonce=NONCE)
        problem(answer, status, slug)


def test_every_signed_route_is_in_the_table_of_roles(ready: Installation) -> None:
    schema = ready.caller.http.app.openapi()  # type: ignore[attr-defined]
    signed = [
        (method, path)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        if {"httpSignature": []} in operation.get("security", [])
    ]
    assert (
        len(signed)
        == 10
        == len(calls(ready.caller, "requester")) + len(calls(ready.caller, "client"))
    )


def test_unknown_and_revoked_keys_get_one_answer(ready: Installation) -> None:
    stranger = Caller(ready.caller.http, ready.caller.token, keyid="mallory")
    unknown = stranger.erase_records("r1")
    problem(unknown, 401, "key-unknown")
    assert ready.caller.operator("DELETE", "/v1/keys/alice").status_code == 200
    revoked = ready.caller.erase_records("r1")
    assert revoked.json() == unknown.json()
    assert revoked.status_code == unknown.status_code


def test_a_withdrawal_whose_answer_was_lost_can_be_repeated(ready: Installation) -> None:
    path = ready.caller.erase_records("r1").headers["location"]
    first = ready.caller.signed("DELETE", path)
    assert (first.status_code, first.json()["state"]) == (200, "withdrawn")
    again = ready.caller.signed("DELETE", path)
    assert (again.status_code, again.json()) == (200, first.json())


def test_a_refused_call_stays_spent_while_the_databases_clock_is_ahead(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nonces are forgotten by the database's clock; signatures expire by the API's."""
    caller = ready.caller
    signed_at = datetime.now(UTC) - timedelta(minutes=4, seconds=30)  # half a minute is left
    headers = {"content-type": "application/json"}
    headers |= sign_request(
        "POST",
        f"{caller.http.base_url}/v1/requests",
        headers,
        ERASE.replace(b"r1", b"nobody"),
        caller.key,
        caller.keyid,
        now=signed_at,
        nonce=NONCE,
    )

    def send() -> Response:
        body = ERASE.replace(b"r1", b"nobody")
        return caller.http.post("/v1/requests", content=body, headers=headers)

    lock_log = lock.lock_log

    def later(state: lock.LogState, by: timedelta) -> lock.LogState:
        return replace(state, now=state.now + by)

    def sweep_ahead(by: timedelta) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sweep, "clock", lambda at: clock(at) + by)
            patch.setattr(lock, "lock_log", lambda *a, **k: later(lock_log(*a, **k), by))
            sweep.run(ready.services)

    problem(send(), 404, "record-unknown")
    sweep_ahead(MAX_WINDOW)
    problem(send(), 401, "signature-replayed")
    sweep_ahead(MAX_WINDOW + timedelta(minutes=2))
    with Session(ready.services.engine) as session:
        assert session.exec(select(UsedNonce).where(UsedNonce.nonce == NONCE)).all() == []
