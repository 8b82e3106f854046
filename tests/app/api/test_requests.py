"""From a signed request over HTTP to a certificate, and every way to be refused."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import Session, select

from app.service.issued.certificates import issuer_key
from lethe.certificates.verify import verify_certificate
from lethe.log.checkpoint import open_checkpoint
from lethe.log.note import parse_vkey
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash
from lethe.signing.http import new_nonce, sign_request
from lethe.signing.keys import generate_key
from models import ErasureRequest, Job, LogEntry
from models.database.types import utcnow
from tests.installation import Installation
from tests.small import MODEL, Caller

EMAIL = "jane.doe@example.org"


def stored(installation: Installation) -> tuple[int, ...]:
    """Count what a refused call must leave as it was; its nonce is spent."""
    with Session(installation.services.engine) as session:
        tables = (LogEntry, ErasureRequest, Job)
        return tuple(len(session.exec(select(table)).all()) for table in tables)


def problem(response: Any, status: int, slug: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:lethe:problem:{slug}"
    assert body["status"] == status
    assert body["detail"]
    return body


def test_a_signed_request_ends_certified(ready: Installation) -> None:
    accepted = ready.caller.erase_records("r3", "r4")
    assert accepted.status_code == 202, accepted.text
    body = accepted.json()
    assert body["state"] == "received"
    assert accepted.headers["location"] == f"/v1/requests/{body['id']}"
    ready.drain()
    http = ready.caller.http
    view = http.get(f"/v1/requests/{body['id']}").json()
    assert view["state"] == "certified"
    events = [item["event"] for item in view["history"]]
    assert events == [
        "request.received",
        "request.executing",
        "request.executed",
        "request.verified",
        "request.certified",
    ]
    bundle = http.get(view["certificate"]).content
    evidence = http.get(f"/v1/requests/{body['id']}/evidence").content
    artifact = ready.caller.operator("GET", f"/v1/models/{MODEL}/versions/2/artifact").content
    issuer, _ = issuer_key(ready.services)
    log = ready.services.ledger.verifier
    verdict = verify_certificate(
        bundle, log=log, issuer=issuer, model=artifact, evidence=evidence
    )
    assert verdict.result == "PASS", verdict.steps
    assert verdict.statement is not None
    predicate = verdict.statement.predicate
    assert predicate.guarantee.class_ == "exact"
    assert predicate.scope.records == 2
    assert predicate.retained_set.after.count == predicate.retained_set.before.count - 2
    assert predicate.request_ref == body["ref"]
    ready.check()


def test_a_preview_counts_records_and_stores_nothing(ready: Installation) -> None:
    before = stored(ready)
    wanted = {"model": MODEL, "scope": {"level": "sample", "records": ["r3", "r4"]}}

    def preview(**changes: Any) -> Any:
        body = json.dumps({**wanted, **changes}).encode()
        return ready.caller.signed("POST", "/v1/requests/preview", body)

    answer = preview()
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["records"], found["needed"]) == (2, 0)
    assert found["method"] == "ridge-exact"
    problem(preview(scope={"level": "sample", "records": ["none"]}), 404, "record-unknown")
    problem(preview(method="no-method"), 422, "method-unavailable")
    problem(preview(scope={"level": "sample"}), 422, "body-invalid")
    assert ready.caller.http.post("/v1/requests/preview", json=wanted).status_code == 401
    assert stored(ready) == before


def test_the_signature_of_a_preview_submits_nothing(ready: Installation) -> None:
    body = json.dumps({"model": MODEL, "scope": {"level": "client", "client": "c1"}}).encode()
    before = stored(ready)
    target = f"{ready.caller.http.base_url}/v1/requests/preview"
    refused = ready.caller.signed("POST", "/v1/requests", body, target=target)
    problem(refused, 401, "signature-invalid")
    assert stored(ready) == before


def test_the_receipt_proves_that_the_log_holds_the_request(ready: Installation) -> None:
    receipt = ready.caller.erase_records("r1").json()["receipt"]
    verifier = parse_vkey(ready.caller.http.get("/v1/log/vkey").text.strip())
    checkpoint = open_checkpoint(receipt["checkpoint"], verifier)
    assert checkpoint.size == receipt["tree_size"]
    leaf = base64.b64decode(receipt["leaf"])
    hashes = [base64.b64decode(value) for value in receipt["hashes"]]
    check_inclusion(
        receipt["log_index"], checkpoint.size, leaf_hash(leaf), hashes, checkpoint.root
    )
    assert json.loads(leaf)["spec"]["event"] == "request.received"


def test_the_log_never_holds_who_asked_or_for_what(ready: Installation) -> None:
    ready.caller.erase({"level": "client", "client": "c2"})
    ready.drain()
    with Session(ready.services.engine) as session:
        leaves = b"".join(entry.leaf for entry in session.exec(select(LogEntry)))
    for secret in (b'"c2"', b"alice", b'"r2"'):
        assert secret not in leaves


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("unknown model", {"fields": {"model": "other"}}, 404, "model-unknown"),
    ("unknown record", {"records": ["r999"]}, 404, "record-unknown"),
    ("unknown client", {"scope": {"level": "client", "client": "c9"}}, 404, "record-unknown"),
    ("unknown subject", {"scope": {"level": "subject", "subject": "s"}}, 404, "record-unknown"),
    ("one of two unknown", {"records": ["r1", "r999"]}, 404, "record-unknown"),
    ("empty scope", {"records": []}, 422, "body-invalid"),
    ("no records", {"scope": {"level": "sample"}}, 422, "body-invalid"),
    ("record twice", {"records": ["r1", "r1"]}, 422, "body-invalid"),
    ("two scopes", {"scope": {"level": "client", "client": "c1", "records": ["r1"]}}, 422, "body-invalid"),
    ("unknown level", {"scope": {"level": "planet", "client": EMAIL}}, 422, "body-invalid"),
    ("unknown field", {"fields": {EMAIL: "x"}}, 422, "body-invalid"),
    ("record of odd type", {"records": [{"mail": EMAIL}]}, 422, "body-invalid"),
    ("control character", {"records": [f"{EMAIL}\x00"]}, 422, "body-invalid"),
    ("unknown method", {"records": ["r1"], "fields": {"method": "magic"}}, 422, "method-unavailable"),
    ("unknown regulation", {"records": ["r1"], "fields": {"regulation": EMAIL}}, 422, "body-invalid"),
    ("oversized scope", {"records": [f"r{i}" for i in range(10_001)]}, 413, "scope-too-large"),
    ("expired", {"records": ["r1"], "age": timedelta(minutes=20)}, 401, "signature-expired"),
    ("of the future", {"records": ["r1"], "age": -timedelta(minutes=2)}, 401, "signature-not-yet-valid"),
    ("for another host", {"records": ["r1"], "target": "http://other.test/v1/requests"}, 401, "signature-invalid"),
    ("oversized body", {"records": ["r" * 1_100_000]}, 413, "body-too-large"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "status", "slug"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])  # fmt: skip
def test_a_bad_request_is_a_named_problem_and_stores_nothing(
    ready: Installation, arguments: dict[str, Any], status: int, slug: str
) -> None:
    before = stored(ready)
    arguments = dict(arguments)
    scope = arguments.pop("scope", None) or {
        "level": "sample",
        "records": arguments.pop("records", ["r1"]),
    }
    body = problem(ready.caller.erase(scope, **arguments), status, slug)
    assert EMAIL not in json.dumps(body)
    assert stored(ready) == before
    # The data is still there to be erased by a good request.
    assert ready.caller.erase_records("r1").status_code == 202


def test_malformed_json_is_a_named_problem(ready: Installation) -> None:
    before = stored(ready)
    response = ready.caller.signed("POST", "/v1/requests", b'{"model": "' + EMAIL.encode())
    assert EMAIL not in response.text
    problem(response, 422, "body-invalid")
    assert stored(ready) == before


def test_an_unsigned_request_is_refused_before_its_body_is_read(ready: Installation) -> None:
    response = ready.caller.http.post("/v1/requests", json={"model": EMAIL})
    assert EMAIL not in response.text
    problem(response, 401, "signature-missing")


def test_a_body_changed_after_signing_is_refused(ready: Installation) -> None:
    before = stored(ready)
    caller = ready.caller
    body = json.dumps({"model": MODEL, "scope": {"level": "sample", "records": ["r1"]}})
    headers = {"content-type": "application/json"}
    headers |= sign_request(
        "POST",
        f"{caller.http.base_url}/v1/requests",
        headers,
        body.replace("r1", "r2").encode(),
        caller.key,
        caller.keyid,
        now=datetime.now(UTC),
        nonce=new_nonce(),
    )
    response = caller.http.post("/v1/requests", content=body.encode(), headers=headers)
    problem(response, 400, "digest-mismatch")
    assert stored(ready) == before


def test_a_replayed_request_is_refused(ready: Installation) -> None:
    nonce = "n" * 24
    assert ready.caller.erase_records("r1", nonce=nonce).status_code == 202
    before = stored(ready)
    problem(ready.caller.erase_records("r2", nonce=nonce), 401, "signature-replayed")
    assert stored(ready) == before


def test_a_foreign_key_and_a_revoked_key_are_refused(ready: Installation) -> None:
    stranger = Caller(ready.caller.http, ready.caller.token, keyid="mallory")
    problem(stranger.erase_records("r1"), 401, "key-unknown")
    impostor = Caller(ready.caller.http, ready.caller.token, key=generate_key("ed25519"))
    problem(impostor.erase_records("r1"), 401, "signature-invalid")
    assert ready.caller.operator("DELETE", "/v1/keys/alice").status_code == 200
    problem(ready.caller.erase_records("r1"), 401, "key-unknown")


def test_a_key_bound_to_a_client_reaches_only_its_records(ready: Installation) -> None:
    bound = Caller(ready.caller.http, ready.caller.token, keyid="only-c1")
    assert bound.register_key(client="c1").status_code == 201
    problem(bound.erase_records("r1", "r2"), 403, "key-not-entitled")
    assert bound.erase_records("r1").status_code == 202  # r1 is c1's


def test_an_erased_record_answers_with_the_earlier_request(ready: Installation) -> None:
    first = ready.caller.erase_records("r1").json()
    pending = problem(ready.caller.erase_records("r1"), 409, "already-erased")
    assert pending["request"] == first["id"]
    ready.drain()
    erased = problem(ready.caller.erase_records("r1", "r2"), 409, "already-erased")
    assert (erased["request"], erased["ref"]) == (first["id"], first["ref"])
    other = Caller(ready.caller.http, ready.caller.token, keyid="bob")
    assert other.register_key().status_code == 201
    assert "request" not in problem(other.erase_records("r1"), 409, "already-erased")


def test_the_same_idempotency_key_gets_the_first_answer(ready: Installation) -> None:
    headers = {"Idempotency-Key": "once"}
    first = ready.caller.erase_records("r1", headers=headers)
    again = ready.caller.erase_records("r1", headers=headers)
    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()
    other = ready.caller.erase_records("r2", headers=headers)
    problem(other, 422, "idempotency-key-reused")
    ready.drain()  # told again later, the receipt is the same and the state the present one
    later = ready.caller.erase_records("r1", headers=headers).json()
    assert later == {**first.json(), "state": "certified"}


def test_a_request_can_be_withdrawn_until_work_begins(ready: Installation) -> None:
    first = ready.caller.erase_records("r1").json()
    stranger = Caller(ready.caller.http, ready.caller.token, keyid="bob")
    stranger.register_key()
    path = f"/v1/requests/{first['id']}"
    problem(stranger.signed("DELETE", path), 404, "not-found")
    assert ready.caller.signed("DELETE", path).json()["state"] == "withdrawn"
    ready.drain()
    assert ready.caller.http.get(path).json()["state"] == "withdrawn"
    second = ready.caller.erase_records("r1").json()  # given free again
    ready.drain()
    done = ready.caller.signed("DELETE", f"/v1/requests/{second['id']}")
    problem(done, 409, "not-withdrawable")
    ready.check()


def test_lists_filter_and_page(ready: Installation) -> None:
    ids = [ready.caller.erase_records(f"r{i}").json()["id"] for i in range(5)]
    seen, after = [], ""
    while True:
        page = ready.caller.operator("GET", f"/v1/requests?limit=2{after}").json()
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == ids
    ready.drain()
    certified = ready.caller.operator("GET", "/v1/requests?state=certified").json()["items"]
    assert len(certified) == 5
    assert all(item["certificate"] and "scope" not in item for item in certified)
    assert not ready.caller.operator("GET", "/v1/requests?overdue=true").json()["items"]
    problem(ready.caller.http.get("/v1/requests"), 401, "token-invalid")
    problem(ready.caller.operator("GET", "/v1/requests?after=%21"), 400, "query-invalid")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_list_measures_deadlines_by_the_clock_of_the_database(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the officers' list and the metric do; that of SQLite is read in one place."""
    ready.caller.erase_records("r1")
    later = utcnow() + timedelta(days=60)
    monkeypatch.setattr("models.database.types.utcnow", lambda: later)
    (late,) = ready.caller.operator("GET", "/v1/requests?overdue=true").json()["items"]
    assert late["overdue"]
    assert ready.caller.operator("GET", "/v1/requests?overdue=false").json()["items"] == []


def test_a_certificate_not_yet_issued_is_a_named_404(ready: Installation) -> None:
    request = ready.caller.erase_records("r1").json()
    path = f"/v1/requests/{request['id']}/certificate"
    problem(ready.caller.http.get(path), 404, "certificate-not-issued")
    ready.drain()
    first = ready.caller.http.get(path)
    again = ready.caller.http.get(path, headers={"if-none-match": first.headers["etag"]})
    assert first.content == ready.caller.http.get(path).content
    assert again.status_code == 304
