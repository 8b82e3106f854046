"""Keys, the log over HTTP, health, and errors nobody planned."""

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from lethe.log.fetch import MissingFileError
from lethe.log.follow import verify_log
from tests.app.api.test_requests import problem
from tests.installation import Installation, answer_errors, make_token
from tests.small import Caller


def test_a_key_is_registered_once_and_revoked_for_good(installation: Installation) -> None:
    caller = installation.caller
    assert caller.register_key().status_code == 201
    assert caller.register_key().status_code == 200  # the same key again
    other = Caller(caller.http, caller.token)
    problem(other.register_key(), 409, "conflict")  # another key under the same id
    problem(caller.register_key(client="c1"), 409, "conflict")  # other rights
    assert caller.operator("DELETE", "/v1/keys/alice").json()["revoked_at"] is not None
    problem(caller.register_key(), 409, "conflict")
    problem(caller.operator("DELETE", "/v1/keys/nobody"), 404, "not-found")
    items = caller.operator("GET", "/v1/keys").json()["items"]
    assert [item["keyid"] for item in items] == ["alice"]


@pytest.mark.parametrize(
    ("changes", "status", "slug"),
    [
        ({"public_key": "no key"}, 400, "key-format"),
        ({"algorithm": "ecdsa-p256-sha256"}, 400, "key-format"),
        ({"algorithm": "rsa"}, 422, "body-invalid"),
        ({"role": "king"}, 422, "body-invalid"),
        ({"keyid": "a b"}, 422, "body-invalid"),
    ],
)
def test_an_unusable_key_is_refused(
    installation: Installation, changes: dict[str, Any], status: int, slug: str
) -> None:
    problem(installation.caller.register_key(**changes), status, slug)


def test_an_auditor_reads_and_does_not_write(ready: Installation) -> None:
    auditor = Caller(ready.caller.http, make_token(ready.services, "auditor"))
    assert auditor.operator("GET", "/v1/requests").status_code == 200
    problem(auditor.register_key(), 403, "scope-insufficient")
    problem(auditor.register_model(), 403, "scope-insufficient")


def test_a_stranger_verifies_the_whole_log_over_http(ready: Installation) -> None:
    for number in range(3):
        ready.caller.erase_records(f"r{number}")
    ready.drain()

    def fetch(path: str) -> bytes:
        response = ready.caller.http.get(f"/v1/log/{path}")
        if response.status_code == 404:
            raise MissingFileError(path)
        assert response.status_code == 200, response.text
        return response.content

    report = verify_log(fetch, ready.services.ledger.verifier)
    assert report.size == report.entries > 15
    tile = ready.caller.http.get("/v1/log/tile/0/000.p/4")
    assert tile.headers["cache-control"].startswith("public")
    assert len(tile.content) == 4 * 32


def test_tiles_that_are_not_there(ready: Installation) -> None:
    http = ready.caller.http
    problem(http.get("/v1/log/tile/0/000"), 404, "not-found")
    problem(http.get("/v1/log/tile/9/000.p/1"), 404, "not-found")
    problem(http.get("/v1/log/tile/nonsense"), 404, "bad-tile")


def test_history_by_reference_comes_with_proofs(ready: Installation) -> None:
    ref = ready.caller.erase_records("r5").json()["ref"]
    ready.drain()
    http = ready.caller.http
    items = http.get(f"/v1/log/entries?ref={ref}").json()["items"]
    assert next(item["event"] for item in items) == "request.received"
    assert len(items) == 5
    index, size = items[0]["log_index"], items[0]["tree_size"]
    proof = http.get(f"/v1/log/proof/inclusion?index={index}&size={size}").json()
    assert proof["hashes"] == items[0]["hashes"]
    growth = http.get(f"/v1/log/proof/consistency?old={index + 1}").json()
    assert growth["new"] == size
    problem(http.get("/v1/log/proof/inclusion?index=99999"), 404, "not-found")
    problem(http.get("/v1/log/proof/consistency?old=99999"), 404, "not-found")


def test_health_and_what_is_not_there(ready: Installation) -> None:
    http = ready.caller.http
    assert http.get("/healthz").json() == {"status": "ok"}
    parts = http.get("/readyz").json()
    assert parts.pop("messages-refused") == "0"
    assert {"database", "lock", "log", "guard", "keys", "broker"} < set(parts)
    assert set(parts.values()) == {"ok"}
    problem(http.get("/v1/nothing"), 404, "not-found")
    problem(http.put("/v1/requests"), 405, "method-not-allowed")


def test_readiness_names_what_does_not_answer(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise OSError

    monkeypatch.setattr(ready.dispatcher, "check", broken)
    assert problem(ready.caller.http.get("/readyz"), 503, "not-ready")["failed"] == "broker"


def test_an_unexpected_error_tells_nothing(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("jane.doe@example.org")

    monkeypatch.setattr("app.service.acceptance.admit", explode)
    answer_errors(ready.caller.http)
    response = ready.caller.erase_records("r1")
    assert "may have been carried out" in problem(response, 500, "internal")["detail"]
    assert "jane.doe" not in response.text + caplog.text
    assert "RuntimeError" in caplog.text


def test_a_database_that_is_away_may_be_asked_again(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("INSERT jane.doe@example.org", None, Exception("jane.doe"))

    answer_errors(ready.caller.http)
    with monkeypatch.context() as patch:
        patch.setattr("app.service.acceptance.admit", away)
        response = ready.caller.erase_records("r1")
    told = problem(response, 503, "database-unavailable")
    assert response.headers["retry-after"] == "5"
    assert "Idempotency-Key" in told["detail"]
    assert "jane.doe" not in response.text + caplog.text


def test_verify_endpoint_gives_the_numbered_verdict(ready: Installation) -> None:
    request = ready.caller.erase_records("r5").json()["id"]
    ready.drain()
    http = ready.caller.http
    bundle = http.get(f"/v1/requests/{request}/certificate").content
    evidence = http.get(f"/v1/requests/{request}/evidence").content
    files = {"bundle": bundle, "evidence": evidence}
    verdict = http.post("/v1/certificates/verify", files=files).json()
    assert verdict["result"] == "PASS"
    assert [step["number"] for step in verdict["steps"]] == list(range(1, 10))
    files["bundle"] = bundle.replace(b'"integratedTime":"0"', b'"integratedTime":"1"')
    verdict = http.post("/v1/certificates/verify", files=files).json()
    assert verdict["result"] == "FAIL"
