"""OpenDSR on a service at work: the specification's example, statuses, refusals, signatures."""

import json
from base64 import b64decode
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.protocols.opendsr.processor import load_processor
from app.settings import Settings, SettingsError
from lethe.identity import digests
from lethe.signing.keys import generate_key, private_pem
from models import Case, ErasureRequest
from tests.app.api.test_requests import problem
from tests.app.protocols.conftest import DOMAIN, certificate_of, write_processor
from tests.installation import Installation, make_token
from tests.workers.jobs.desk.test_people import ANN, BOB, EVE, named, write

# The example of section 7.2, but for its callback (see test_callbacks.py) and for who is in the models here.
EXAMPLE: dict[str, Any] = {
    "regulation": "gdpr",
    "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
    "subject_request_type": "erasure",
    "submitted_time": "2018-10-02T15:00:00Z",
    "subject_identities": [
        {"identity_type": "email", "identity_value": ANN, "identity_format": "raw"}
    ],
    "api_version": "2.0",
    "extensions": {"example-other-processor.com": {"foo-other-processor-custom-id": 654321}},
}
ID = EXAMPLE["subject_request_id"]


class Controller:
    """A machine with an agent's token, which verifies each answer's signature."""

    def __init__(self, installation: Installation, token: str | None = None) -> None:
        self.installation = installation
        self.http = installation.caller.http
        self.token = token or make_token(installation.services, "agent")

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        sent = headers or {"authorization": f"Bearer {self.token}"}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is None:
            answer = self.http.request(method, f"/dsr{path}", headers=sent)
        else:
            answer = self.http.request(method, f"/dsr{path}", headers=sent, content=content)
        self.verify(answer)
        return answer

    def verify(self, answer: httpx2.Response) -> None:
        """As section 8.8: by the certificate that discovery names, over the raw body."""
        url = self.http.get("/dsr/discovery").json()["processor_certificate"]
        certificate = x509.load_pem_x509_certificate(self.http.get(url).content)
        key = certificate.public_key()
        assert isinstance(key, RSAPublicKey)
        assert answer.headers["x-opendsr-processor-domain"] == DOMAIN
        signature = b64decode(answer.headers["x-opendsr-signature"])
        key.verify(signature, answer.content, PKCS1v15(), SHA256())
        with pytest.raises(InvalidSignature):
            key.verify(signature, answer.content + b" ", PKCS1v15(), SHA256())

    def ask(self, **changes: Any) -> httpx2.Response:
        return self.call("POST", "/requests", EXAMPLE | changes)

    def status(self, request: str = ID) -> str:
        answer = self.call("GET", f"/requests/{request}")
        assert answer.status_code == 200, answer.text
        found: str = answer.json()["request_status"]
        return found


def error(answer: httpx2.Response, status: int, reason: str) -> str:
    """Insist on the specification's error; return its message."""
    body = answer.json()["error"]
    assert (answer.status_code, body["code"]) == (status, status), answer.text
    assert [one["reason"] for one in body["errors"]][:1] == [reason]
    assert body["errors"][0].keys() == {"domain", "reason", "message"}
    message: str = body["message"]
    return message


def test_discovery_says_what_is_taken(serving: Installation) -> None:
    found = serving.caller.http.get("/dsr/discovery").json()
    assert found["api_version"] == "2.0"
    assert found["supported_subject_request_types"] == ["erasure"]
    pairs = {(i["identity_type"], i["identity_format"]) for i in found["supported_identities"]}
    assert ("email", "raw") in pairs
    assert ("controller_customer_id", "md5") in pairs
    assert len(pairs) == 8


def test_the_example_is_completed_once_it_is_certified(serving: Installation) -> None:
    controller = Controller(serving)
    answer = controller.ask()
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert body.keys() == {
        "controller_id", "expected_completion_time", "received_time", "encoded_request",
        "subject_request_id",
    }  # fmt: skip
    assert body["subject_request_id"] == ID
    assert body["controller_id"].startswith("test ")
    assert json.loads(b64decode(body["encoded_request"])) == EXAMPLE
    assert answer.headers["cache-control"] == "no-store"
    assert controller.status() == "pending"
    size = serving.services.ledger.latest().size
    again = controller.ask()
    assert again.status_code == 201
    assert again.json() == body
    assert serving.services.ledger.latest().size == size
    serving.drain()
    assert controller.status() == "completed"
    assert controller.ask().status_code == 201
    late = controller.call("DELETE", f"/requests/{ID}")
    error(late, 400, "not-withdrawable")
    serving.check()


def test_a_request_waits_for_review_as_any_other(serving: Installation) -> None:
    caller = serving.caller
    assert caller.register_model(named(), ref="held", decide="review").status_code == 201
    serving.drain()
    controller = Controller(serving)
    assert controller.ask().status_code == 201
    serving.drain()
    assert controller.status() == "in_progress"  # one model is done, one waits
    with Session(serving.services.engine) as session:
        states = {one.state for one in session.exec(select(ErasureRequest))}
        ref = session.exec(select(Case.ref)).one()
    assert states == {"certified", "awaiting-review"}
    approved = caller.operator("POST", f"/v1/cases/{ref}/approve")
    assert approved.status_code == 200, approved.text
    serving.drain()
    assert controller.status() == "completed"


def test_rows_held_out_at_their_source_are_not_completed(serving: Installation) -> None:
    arrays = named(r99=EVE)
    assert serving.caller.register_model(arrays, ref="held").status_code == 201
    serving.drain()
    controller = Controller(serving)
    eve = {"identity_type": "email", "identity_value": EVE, "identity_format": "raw"}
    assert controller.ask(subject_identities=[eve]).status_code == 201
    assert controller.status() == "cancelled"


def test_what_is_pending_can_be_cancelled(serving: Installation) -> None:
    controller = Controller(serving)
    controller.ask()
    answer = controller.call("DELETE", f"/requests/{ID}")
    assert answer.status_code == 202, answer.text
    assert answer.json().keys() == {
        "controller_id", "subject_request_id", "received_time", "api_version",
    }  # fmt: skip
    assert controller.status() == "cancelled"
    assert controller.call("DELETE", f"/requests/{ID}").status_code == 202
    serving.drain()
    assert controller.status() == "cancelled"
    found = serving.caller.operator("GET", "/v1/requests").json()["items"]
    assert {one["state"] for one in found} == {"withdrawn"}
    serving.check()


def test_several_identities_are_one_request(serving: Installation) -> None:
    controller = Controller(serving)
    people = [
        {"identity_type": "email", "identity_value": ANN, "identity_format": "raw"},
        {
            "identity_type": "email",
            "identity_value": digests("email", BOB)["sha1"].hex().upper(),
            "identity_format": "sha1",
        },
        {
            "identity_type": "controller_customer_id",
            "identity_value": "4711",
            "identity_format": "raw",
        },
    ]
    assert controller.ask(subject_identities=people).status_code == 201
    with Session(serving.services.engine) as session:
        assert len(session.exec(select(Case)).all()) == 3
    serving.drain()
    assert controller.status() == "completed"
    found = serving.caller.operator("GET", "/v1/requests").json()["items"]
    assert len(found) == 2


def test_identities_of_version_3_are_taken(serving: Installation) -> None:
    controller = Controller(serving)
    identities = {
        "email": {"value": ANN, "encoding": "raw"},
        "controller_customer_id": {"value": "x", "encoding": "raw"},
    }
    answer = controller.ask(
        subject_identities=identities, api_version="3.0", group_id="g", skip_waiting_period=True
    )
    assert answer.status_code == 201, answer.text
    serving.drain()
    assert controller.status() == "completed"


def test_a_controller_sees_and_cancels_its_own_requests_alone(serving: Installation) -> None:
    one, other = Controller(serving), Controller(serving)
    one.ask()
    error(other.call("GET", f"/requests/{ID}"), 404, "not-found")
    error(other.call("DELETE", f"/requests/{ID}"), 404, "not-found")
    assert other.ask().status_code == 201  # the same id of another controller
    error(other.call("DELETE", f"/requests/{ID}"), 403, "scope-insufficient")
    assert one.status() == other.status() == "pending"


# What is asked for otherwise than in the example, and the reason of the refusal.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"subject_request_type": "access"}, "UnsupportedRequestType"),
    ({"subject_request_type": "portability"}, "UnsupportedRequestType"),
    ({"status_callback_urls": ["https://10.1.2.3/x"]}, "InvalidCallback"),
    ({"status_callback_urls": ["http://c.example/x"] * 6}, "Malformed"),
    ({"extensions": {DOMAIN: {"x": 1}}}, "UnsupportedExtension"),
    ({"subject_request_type": "sale"}, "Malformed"),
    ({"regulation": "lgpd"}, "Malformed"),
    ({"subject_request_id": ID.upper()}, "Malformed"),
    ({"subject_request_id": "a7551968-d5d6-14b2-9831-815ac9017798"}, "Malformed"),
    ({"submitted_time": "yesterday"}, "Malformed"),
    ({"submitted_time": "2018-10-02T15:00:00"}, "Malformed"),
    ({"subject_identities": []}, "Malformed"),
    ({"subject_identities": {}}, "Malformed"),
    ({"subject_identities": EXAMPLE["subject_identities"] * 11}, "Malformed"),
    ({"api_version": "1.0"}, "Malformed"),
    ({"secret-field": ANN}, "Malformed"),
    ({"subject_identities": {"phone": {"value": "1", "encoding": "raw"}}}, "UnsupportedIdentityType"),
    ({"subject_identities": {ANN: {"value": "1", "encoding": "raw"}}}, "UnsupportedIdentityType"),
    ({"subject_identities": {"email": {"value": ANN, "encoding": "sha256"}}}, "InvalidIdentity"),
    ({"subject_identities": {"email": {"value": ANN, "encoding": "rot13"}}}, "Malformed"),
    ({"subject_identities": {"email": {"value": f"{ANN}\u0000", "encoding": "raw"}}}, "InvalidIdentity"),
]  # fmt: skip


def test_what_is_not_supported_gets_the_specifications_error(serving: Installation) -> None:
    controller = Controller(serving)
    size = serving.services.ledger.latest().size
    for changes, reason in REFUSED:
        answer = controller.ask(**changes)
        error(answer, 400, reason)
        assert ANN not in answer.text
        assert "secret-field" not in answer.text
    for body in (b"", b"{", b'{"regulation":"gdpr","regulation":"ccpa"}', b"[]"):
        error(controller.call("POST", "/requests", body), 400, "Malformed")
    assert serving.services.ledger.latest().size == size
    error(controller.call("GET", f"/requests/{ID}"), 404, "not-found")


def test_an_id_is_of_one_content(serving: Installation) -> None:
    controller = Controller(serving)
    controller.ask()
    other = [dict(EXAMPLE["subject_identities"][0], identity_value=BOB)]
    error(controller.ask(subject_identities=other), 400, "conflict")
    error(controller.ask(subject_identities=other * 2), 400, "conflict")
    both = [*EXAMPLE["subject_identities"], *other]
    error(controller.ask(subject_identities=both), 400, "conflict")
    error(controller.ask(regulation="ccpa"), 400, "conflict")
    assert controller.ask(submitted_time="2018-10-02T15:00:01Z").status_code == 201


def test_only_agents_call(serving: Installation) -> None:
    for scope in ("operator", "auditor", None):
        token = "x" if scope is None else make_token(serving.services, scope)
        controller = Controller(serving, token)
        status = 401 if scope is None else 403
        reason = "token-invalid" if scope is None else "scope-insufficient"
        error(controller.ask(), status, reason)
        error(controller.call("GET", f"/requests/{ID}"), status, reason)
        error(controller.call("DELETE", f"/requests/{ID}"), status, reason)
        assert "www-authenticate" in controller.call("GET", f"/requests/{ID}", x="1").headers


def test_an_agents_token_opens_nothing_else(serving: Installation) -> None:
    headers = {"authorization": f"Bearer {make_token(serving.services, 'agent')}"}
    for path in ("requests", "keys", "models", "cases/x", "releases"):
        answer = serving.caller.http.get(f"/v1/{path}", headers=headers)
        problem(answer, 403, "scope-insufficient")
    answer = serving.caller.http.get("/metrics", headers=headers)
    problem(answer, 403, "scope-insufficient")


def test_a_case_that_is_taken_away_is_missed(serving: Installation) -> None:
    """Or a request whose other cases are done would be signed as completed."""
    controller = Controller(serving)
    people = {
        "email": {"value": ANN, "encoding": "raw"},
        "controller_customer_id": {"value": "4711", "encoding": "raw"},
    }
    controller.ask(subject_identities=people)
    assert controller.status() == "pending"
    with Session(serving.services.engine) as session:
        cases = {
            case.parts[0]["found"]: case.model_dump() for case in session.exec(select(Case))
        }

    def stored(*rows: dict[str, Any]) -> httpx2.Response:
        with Session(serving.services.engine) as session:
            for case in session.exec(select(Case)).all():
                session.delete(case)
            session.flush()
            session.add_all([Case(**row) for row in rows])
            session.commit()
        return controller.call("GET", f"/requests/{ID}")

    pending, nothing = cases["erasing"], cases["nothing"]
    assert stored(pending, nothing).json()["request_status"] == "pending"
    error(stored(nothing), 500, "people-changed")
    error(stored(pending), 404, "not-found")  # the first one by its kind, customer, is missing
    error(stored(nothing, {**nothing, "ref": pending["ref"]}), 500, "people-changed")
    # Without its key a case is not compared with the log.
    forged = {**pending, "key": None, "parts": nothing["parts"]}
    error(stored(nothing, forged), 400, "conflict")


def test_a_state_that_the_log_has_not_is_not_signed(serving: Installation) -> None:
    controller = Controller(serving)
    controller.ask()
    for state in ("certified", "withdrawn", "refused"):
        write(serving, f"UPDATE erasure_requests SET state = '{state}'")
        error(controller.call("GET", f"/requests/{ID}"), 500, "people-changed")
    write(serving, "UPDATE erasure_requests SET state = 'received'")
    assert controller.status() == "pending"


def test_it_is_off_unless_it_is_configured(ready: Installation) -> None:
    for path in ("/dsr/discovery", "/dsr/certificate", f"/dsr/requests/{uuid4()}"):
        problem(ready.caller.http.get(path), 404, "not-found")


def test_a_certificate_that_does_not_fit_stops_the_start(
    settings: Settings, ledger: Ledger, processor_key: RSAPrivateKey
) -> None:
    keys, spoken = settings.keys_dir, settings.model_copy(update={"opendsr_domain": DOMAIN})
    assert load_processor(settings) is None

    def refuses(what: str) -> None:
        with pytest.raises(SettingsError, match=what):
            load_processor(spoken)

    refuses("put the domain's certificate")
    write_processor(keys, processor_key, certificate_of(processor_key, "other.example"))
    refuses("not of LETHE_OPENDSR_DOMAIN")
    write_processor(keys, processor_key, certificate_of(processor_key))
    refuses("not of LETHE_OPENDSR_DOMAIN")
    write_processor(keys, processor_key)
    assert load_processor(spoken) is not None
    (keys / "opendsr.key").write_text(private_pem(generate_key("ed25519")))
    refuses("not an RSA key")
    (keys / "opendsr.key").write_text("x")
    refuses("put the domain's certificate")
