"""/metrics: what it counts, who may read it, and that neither it nor a log line names anybody."""

import json
import logging
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
from sqlalchemy import text, update
from sqlmodel import col

from app import logs, metrics
from app.election import Election
from app.ledger import storage
from app.ledger.startup import open_ledger
from app.metrics import WorkerMetricsError
from app.schemas.requests import State
from app.service import health
from app.service.context import Services
from lethe.signing.keys import generate_key
from models import ErasureRequest, Job, ScheduleLease
from models.database.types import utcnow
from tests.app.api.test_requests import problem
from tests.installation import Installation, make_token
from tests.servers import free_port

ID = "7d0ae9a5-1f58-4b0e-9e3c-8f3f6f1f6b0d"
Samples = dict[tuple[str, tuple[str, ...]], float]


def parse(body: str) -> Samples:
    """Return samples by name and label values."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


@pytest.fixture
def scrape(ready: Installation) -> Callable[[], Samples]:
    def found() -> Samples:
        ready.services.seen.pop("metrics", None)  # what was read a moment ago is still answered
        response = ready.caller.operator("GET", "/metrics")
        assert response.status_code == 200
        return parse(response.text)

    return found


def test_the_life_of_a_request_is_counted(
    ready: Installation, scrape: Callable[[], Samples]
) -> None:
    before = scrape()
    assert before["lethe_requests_accepted_total", ()] == 0
    assert ready.caller.erase_records("r1").status_code == 202
    accepted = scrape()
    assert accepted["lethe_requests_accepted_total", ()] == 1
    assert accepted["lethe_requests", ("received",)] == 1
    assert accepted["lethe_jobs", ("erase", "execute")] == 1
    assert accepted["lethe_steps_total", ()] == 0
    assert accepted["lethe_queue_oldest_seconds", ()] > 0
    assert accepted["lethe_log_entries", ()] == before["lethe_log_entries", ()] + 1
    assert accepted["lethe_checkpoint_lag_entries", ()] == 0
    ready.drain()
    certified = scrape()
    assert certified["lethe_certified_total", ("PASS",)] == 1
    assert certified["lethe_steps_total", ()] == 1
    assert certified["lethe_requests", ("certified",)] == 1
    assert certified["lethe_queue_oldest_seconds", ()] == 0
    assert not [labels for name, labels in certified if name == "lethe_jobs"]
    for stage in ("execute", "verify", "certify"):
        count = "lethe_stage_seconds_count", (stage,)
        assert certified[count] == accepted.get(count, 0) + 1
    waits = "lethe_log_lock_wait_seconds_count", ()
    assert certified[waits] > accepted[waits] > before[waits]


def test_leases_and_overdue_requests_are_counted(
    ready: Installation, scrape: Callable[[], Samples]
) -> None:
    ready.caller.erase_records("r1")
    later, past = utcnow().replace(year=2100), utcnow().replace(year=2020)
    with ready.services.engine.begin() as connection:
        begun = {"lease_until": later, "lease_token": 1, "created_at": past}
        connection.execute(update(Job).where(col(Job.kind) == "erase").values(**begun))
        connection.execute(update(ErasureRequest).values(due_at=past))
    found = scrape()
    assert found["lethe_leases_held", ()] == 1
    assert found["lethe_steps_total", ()] == 1
    assert found["lethe_requests_overdue", ()] == 1
    assert found["lethe_queue_oldest_seconds", ()] > 365 * 86400


def test_whether_a_process_runs_the_schedule_is_told_by_its_lease(
    ready: Installation, scrape: Callable[[], Samples]
) -> None:
    def runs() -> float:
        return scrape()["lethe_schedule_running", ()]

    assert runs() == 0  # it was never started
    assert Election(ready.services.engine).leads()
    assert runs() == 1
    with ready.services.engine.begin() as connection:  # and it was not renewed
        connection.execute(update(ScheduleLease).values(until=utcnow()))
    assert runs() == 0


def test_refusals_are_counted_by_their_type(
    ready: Installation, scrape: Callable[[], Samples]
) -> None:
    refused = "lethe_refused_total"
    before = scrape()
    ready.caller.erase_records("nobody's")
    ready.caller.http.get("/no-such-page")
    after = scrape()
    assert (
        after[refused, ("record-unknown",)] == before.get((refused, ("record-unknown",)), 0) + 1
    )
    assert after[refused, ("not-found",)] == before.get((refused, ("not-found",)), 0) + 1
    calls = "lethe_call_seconds_count"
    assert after[calls, ("submitRequest",)] == before.get((calls, ("submitRequest",)), 0) + 1


def test_the_most_open_requests_of_a_key_and_refusals_by_quota_are_counted(
    ready: Installation, scrape: Callable[[], Samples]
) -> None:
    refused = "lethe_refused_total", ("quota",)
    before = scrape()
    assert before["lethe_requests_open_of_a_key", ()] == 0
    object.__setattr__(ready.services.settings, "open_requests_per_key", 2)
    bob = replace(ready.caller, keyid="bob", key=generate_key("ed25519"))
    assert bob.register_key().status_code == 201
    for caller, record in ((ready.caller, "r1"), (bob, "r2"), (ready.caller, "r3")):
        assert caller.erase_records(record).status_code == 202
    problem(ready.caller.erase_records("r4"), 429, "quota")
    after = scrape()
    assert after["lethe_requests_open_of_a_key", ()] == 2
    assert after[refused] == before.get(refused, 0) + 1
    ready.drain()
    assert scrape()["lethe_requests_open_of_a_key", ()] == 0


def test_disk_and_broker_are_there_and_each_may_be_away(
    ready: Installation, scrape: Callable[[], Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = scrape()
    assert found["lethe_free_bytes", ()] > 0
    assert found["lethe_messages_dropped_total", ()] == 0
    assert {labels for name, labels in found if name == "lethe_scrape_ok"} == {
        ("broker",),
        ("database",),
        ("disk",),
        ("followers",),
        ("readiness",),
    }

    def away(*_: object) -> Any:
        raise ConnectionError("jane.doe@example.org")

    monkeypatch.setattr(type(ready.services.dispatcher), "check", away)
    found = scrape()
    assert found["lethe_scrape_ok", ("broker",)] == 0
    assert found["lethe_scrape_ok", ("database",)] == 1
    assert ("lethe_messages_dropped_total", ()) not in found


def test_what_has_not_happened_yet_is_zero(
    ready: Installation, scrape: Callable[[], Samples]
) -> None:
    """Or the first failed request would be no increase: it would begin its series."""
    found = scrape()
    for state in get_args(State):
        assert found["lethe_requests", (state,)] == 0
    for state in ("waiting", "delivered", "failed", "dropped"):
        assert found["lethe_deliveries", (state,)] == 0
    for result in ("PASS", "FAIL", "INCONCLUSIVE"):
        assert found["lethe_certified_total", (result,)] == 0
    refused = {labels for name, labels in found if name == "lethe_refused_total"}
    assert {("quota",), ("rate-limit",), ("token-invalid",), ("body-invalid",)} <= refused


def test_each_part_of_readyz_has_its_value(
    ready: Installation, scrape: Callable[[], Samples]
) -> None:
    found = scrape()
    assert {labels for name, labels in found if name == "lethe_ready"} == {
        (part,) for part in health.PARTS
    }
    assert all(found["lethe_ready", (part,)] == 1 for part in health.PARTS)
    key = ready.services.settings.keys_dir / "issuer.key"
    key.rename(key.with_suffix(".away"))
    away = scrape()
    assert {part for part in health.PARTS if away["lethe_ready", (part,)] == 0} == {"keys"}
    key.with_suffix(".away").rename(key)
    assert scrape()["lethe_ready", ("keys",)] == 1


def test_readiness_is_looked_at_no_more_often_than_the_rest(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def counted(*arguments: Any) -> Any:  # by the part `keys`, asked by each /readyz
        looked.append(1)
        return open_ledger(*arguments)

    monkeypatch.setattr(health, "open_ledger", counted)
    ready.services.seen.clear()
    for _ in range(20):
        metrics.read(ready.services)
    assert looked == [1]


def test_without_the_database_no_other_part_waits_for_it(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> Any:
        raise ConnectionError

    monkeypatch.setattr(Services, "reading", away)
    monkeypatch.setattr(health, "open_ledger", lambda *_: pytest.fail("it was asked"))
    ready.services.seen.clear()
    found = {one.name: one.samples for one in metrics.read(ready.services)}
    assert found["lethe_ready"] == {("database",): 0}


def test_a_statement_that_takes_too_long_is_ended(
    ready: Installation, scrape: Callable[[], Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endless query stands in for a table that grew: the scrape answers without it."""
    endless = text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    )
    monkeypatch.setattr(metrics, "STATEMENT_S", 0.2)
    monkeypatch.setattr(
        storage, "read_size", lambda session: session.connection().execute(endless)
    )
    found = scrape()
    assert found["lethe_scrape_ok", ("database",)] == 0
    assert found["lethe_scrape_ok", ("disk",)] == 1
    # It is there, and what reads more of it would wait for ever.
    assert {key: found[key] for key in found if key[0] == "lethe_ready"} == {
        ("lethe_ready", ("database",)): 1
    }
    monkeypatch.undo()
    assert scrape()["lethe_scrape_ok", ("database",)] == 1  # the connection is good again


def test_what_was_read_a_moment_ago_is_answered_again(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = metrics.read(ready.services)
    assert metrics.read(ready.services) is first
    monkeypatch.setattr(metrics, "FRESH_S", 0.0)
    assert metrics.read(ready.services) is not first


def test_a_token_is_needed_unless_the_setting_opens_it(ready: Installation) -> None:
    http, services = ready.caller.http, ready.services
    problem(http.get("/metrics"), 401, "token-invalid")
    auditor = {"authorization": f"Bearer {make_token(services, 'auditor')}"}
    assert http.get("/metrics", headers=auditor).status_code == 200
    settings = services.settings.model_copy(update={"metrics_access": "open"})
    http.app.state.services = replace(services, settings=settings)  # type: ignore[attr-defined]
    assert http.get("/metrics").status_code == 200


def test_a_worker_answers_what_it_counts_and_no_more(ready: Installation) -> None:
    port = free_port()
    metrics.serve_own(f"127.0.0.1:{port}")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answered:
        found = parse(answered.read().decode())
    assert ("lethe_log_lock_wait_seconds_count", ()) in found
    assert not [name for name, _ in found if name in ("lethe_jobs", "lethe_log_entries")]
    with pytest.raises(WorkerMetricsError, match="a port of its own"):
        metrics.serve_own(f"127.0.0.1:{port}")


def test_each_answer_has_the_id_of_its_call(ready: Installation) -> None:
    http = ready.caller.http
    assert http.get("/healthz", headers={"x-request-id": ID}).headers["x-request-id"] == ID
    made = [http.get(path).headers["x-request-id"] for path in ("/healthz", "/metrics", "/%01")]
    assert len(set(made)) == 3
    for sent in ("jane.doe@example.org", "r1"):
        answered = http.get("/healthz", headers={"x-request-id": sent}).headers["x-request-id"]
        assert answered == logs.accept_call_id(answered) != sent
    twice = http.get("/healthz", headers=[("x-request-id", ID), ("x-request-id", ID)])
    assert twice.headers["x-request-id"] != ID


def test_a_worker_s_lines_about_a_job_carry_the_id_of_its_call(
    ready: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setFormatter(logs.JsonLines())
    for name in logs.OWN:
        caplog.set_level(logging.INFO, name)
    ready.caller.erase_records("r1", headers={"x-request-id": ID})
    ready.caller.erase_records("r2")
    ready.drain()
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    of_call = [line["message"] for line in lines if line.get("call_id") == ID]
    assert [message.split()[0] for message in of_call][:1] == ["submitRequest"]
    begun = [message.split(": ")[1].split()[0] for message in of_call[1:]]
    assert begun == ["execute", "verify", "certify"]
    jobs = {message.split(":")[0] for message in of_call[1:]}
    assert len(jobs) == 1
    others = [line for line in lines if line["message"].startswith(tuple(jobs))]
    assert len(others) == len(begun)


def test_neither_a_line_nor_a_metric_names_anybody(
    ready: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    name, record = "jane.doe@example.org", "r7"
    caller = ready.caller
    caplog.handler.setFormatter(logs.JsonLines())
    for logger in logs.OWN:
        caplog.set_level(logging.INFO, logger)
    accepted = caller.erase_records(record, headers={"x-request-id": name})
    assert accepted.status_code == 202
    caller.erase_records(name)
    caller.erase({"level": "client", "client": name})
    caller.http.get(f"/v1/requests/{name}", headers={"user-agent": name})
    caller.http.get(f"/v1/requests/{accepted.json()['id']}")
    caller.operator("POST", "/v1/keys", json={"keyid": name, "public_key": name, name: 1})
    ready.drain()
    ready.services.seen.pop("metrics", None)
    found = caller.operator("GET", "/metrics").text
    lines = [json.loads(line)["message"] for line in caplog.text.splitlines()]
    assert len(lines) > 5
    written = "\n".join(lines)
    for planted in (name, f'"{record}"', f" {record} ", accepted.json()["id"], caller.keyid):
        assert planted not in caplog.text
        assert planted not in found
    assert "small" not in found  # the model's reference
    assert "getRequest" in written
