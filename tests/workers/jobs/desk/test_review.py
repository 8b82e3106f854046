"""Requests wait for an officer; the worker trusts the log's approvals, never a table's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session

from app.ledger.startup import load_issuer
from app.ledger.transaction import Transaction
from lethe.certificates.case_summary import check_summary
from lethe.identity import digests
from lethe.signing.keys import public_pem
from models.database.types import utcnow
from tests.exchanged import exchange_references
from tests.installation import Installation, make_token
from tests.small import MODEL, Caller
from tests.workers.jobs.desk.test_cases import opened
from tests.workers.jobs.desk.test_people import ANN, named


def other(installation: Installation) -> Caller:
    """Return a second operator."""
    return replace(installation.caller, token=make_token(installation.services))


def decide(caller: Caller, ref: str, decision: str, **body: str) -> Any:
    """Return the response to an operator's decision."""
    return caller.operator("POST", f"/v1/cases/{ref}/{decision}", json=body or None)


def write(installation: Installation, statement: str, values: dict[str, Any]) -> None:
    """Write to the tables as an attacker with the database but no key."""
    with Session(installation.services.engine) as session:
        session.connection().execute(text(statement), values)
        session.commit()


def state(installation: Installation, request_id: str) -> dict[str, Any]:
    """Return a request as its holder sees it."""
    found = installation.caller.http.get(f"/v1/requests/{request_id}")
    assert found.status_code == 200, found.text
    shown: dict[str, Any] = found.json()
    return shown


def events(installation: Installation, request_id: str) -> list[str]:
    """Return a request's history, without the prefix."""
    history = state(installation, request_id)["history"]
    return [item["event"].removeprefix("request.") for item in history]


@pytest.fixture
def reviewed(installation: Installation) -> Installation:
    """An installation whose model requires officers' decisions."""
    installation.ready(decide="review")
    return installation


def test_an_unbound_keys_request_is_executed_once_another_approved_it(
    reviewed: Installation,
) -> None:
    accepted = reviewed.caller.erase_records("r1").json()
    assert accepted["state"] == "awaiting-review"
    reviewed.recover()
    reviewed.drain()
    assert events(reviewed, accepted["id"]) == ["received"]
    ref = accepted["ref"]
    found = decide(other(reviewed), ref, "approve")
    assert found.status_code == 200, found.text
    assert decide(other(reviewed), ref, "approve").status_code == 409  # once
    reviewed.drain()
    shown = state(reviewed, accepted["id"])
    assert shown["state"] == "certified"
    assert events(reviewed, accepted["id"])[:3] == ["received", "approved", "executing"]
    index = next(
        one["log_index"] for one in shown["history"] if one["event"] == "request.approved"
    )
    evidence = reviewed.caller.http.get(f"/v1/requests/{accepted['id']}/evidence").json()
    assert evidence["report"]["details"]["decision.entry"] == str(index)
    answer = reviewed.caller.operator("GET", f"/v1/cases/{ref}/summary")
    key, _ = load_issuer(reviewed.services.settings)
    part = check_summary(answer.content, key.public_key()).predicate.parts[0]
    assert [one.decision for one in part.decisions] == ["approved"]
    reviewed.check()


def test_a_table_that_pretends_an_approval_has_nothing_executed(
    reviewed: Installation,
) -> None:
    planted = reviewed.caller.erase_records("r1").json()
    honest = reviewed.caller.erase_records("r2").json()
    assert decide(other(reviewed), honest["ref"], "approve").status_code == 200
    write(
        reviewed,
        "UPDATE erasure_requests SET state = 'received' WHERE id = :id",
        {"id": planted["id"]},
    )
    write(
        reviewed,
        "UPDATE jobs SET stage = 'execute' WHERE request_id = :id",
        {"id": planted["id"]},
    )
    reviewed.recover()
    reviewed.drain()
    reviewed.recover()
    reviewed.drain()
    assert "executed" not in events(reviewed, planted["id"])
    assert events(reviewed, planted["id"])[-1] == "awaiting-review"
    assert state(reviewed, planted["id"])["state"] == "awaiting-review"
    assert state(reviewed, honest["id"])["state"] == "certified"
    assert decide(other(reviewed), planted["ref"], "approve").status_code == 200
    reviewed.drain()
    assert state(reviewed, planted["id"])["state"] == "certified"
    reviewed.check()


def test_a_policy_changed_in_the_table_has_nothing_executed(reviewed: Installation) -> None:
    write(reviewed, "UPDATE models SET decide = 'at-once'", {})
    accepted = reviewed.caller.erase_records("r1").json()
    reviewed.drain()
    assert "executed" not in events(reviewed, accepted["id"])
    # Put back by hand: the log still has the model as out of service.
    write(reviewed, "UPDATE models SET decide = 'review', state = 'ready', failure = NULL", {})
    write(reviewed, "UPDATE erasure_requests SET state = 'received'", {})
    write(reviewed, "UPDATE jobs SET stage = 'execute' WHERE kind = 'erase'", {})
    reviewed.recover()
    reviewed.drain()
    assert "executed" not in events(reviewed, accepted["id"])
    assert state(reviewed, accepted["id"])["state"] == "needs-decision"
    retried = reviewed.caller.operator(
        "POST",
        f"/v1/requests/{accepted['id']}/decision",
        json={"decision": "retry", "why": "the row is restored"},
    )
    assert retried.status_code == 200
    reviewed.drain()
    assert "executed" not in events(reviewed, accepted["id"])
    assert state(reviewed, accepted["id"])["state"] == "awaiting-review"


def test_nobody_approves_what_they_submitted(installation: Installation) -> None:
    assert installation.caller.register_model(named(), decide="review").status_code == 201
    installation.drain()
    case = opened(installation, ANN).json()
    request = case["parts"][0]["request"]
    assert state(installation, request)["state"] == "awaiting-review"
    # The log has the submitter, whatever the tables say.
    write(installation, "UPDATE cases SET opened_by = 'somebody'", {})
    for ref in (case["parts"][0]["request_ref"], request):
        assert decide(installation.caller, ref, "approve").status_code == 403
    with Session(installation.services.engine) as session:
        name = session.connection().execute(text("SELECT name FROM bearer_tokens")).scalar()
    write(installation, "UPDATE cases SET opened_by = :name", {"name": name})
    assert decide(installation.caller, case["ref"], "approve").status_code == 403
    installation.drain()
    assert state(installation, request)["state"] == "awaiting-review"
    assert decide(other(installation), case["ref"], "approve").status_code == 200
    installation.drain()
    assert state(installation, request)["state"] == "certified"


def test_nobody_approves_what_their_case_added_to_another_s_request(
    installation: Installation,
) -> None:
    """Cases that shared a record get one request; r9 is in it for the second case alone."""
    assert installation.caller.register_model(named(), decide="review").status_code == 201
    installation.drain()
    assert installation.caller.register_key().status_code == 201
    second, claims = other(installation), installation.caller.erase_records("r0", "r5", "r9")
    assert claims.status_code == 202, claims.text
    whose = {"kind": "email", "sha256": digests("email", "eve@example.org")["sha256"].hex()}
    known = [{"record": one, "person": whose} for one in ("r5", "r9")]
    body: dict[str, Any] = {"model": MODEL, "identities": known}
    assert second.operator("POST", "/v1/people/import", json=body).status_code == 200
    first = opened(installation, ANN).json()  # r0 and r5
    asked = {"person": whose, "ticket": "t", "checked": "by telephone"}
    assert second.operator("POST", "/v1/cases", json=asked).status_code == 201
    withdrawn = installation.caller.signed("DELETE", f"/v1/requests/{claims.json()['id']}")
    assert withdrawn.status_code == 200, withdrawn.text
    shared = decide(installation.caller, first["ref"], "note", text="one for both").json()
    request = shared["parts"][0]["request"]
    assert state(installation, request)["scope"]["records"] == ["r0", "r5", "r9"]
    for caller in (installation.caller, second):
        assert decide(caller, request, "approve").status_code == 403
    assert decide(other(installation), request, "approve").status_code == 200
    installation.drain()
    assert state(installation, request)["state"] == "certified"
    installation.check()


def test_a_key_bound_to_the_data_needs_no_officer(installation: Installation) -> None:
    installation.ready(decide="review")
    bound = replace(installation.caller, keyid="client-0")
    assert bound.register_key(client="c0").status_code == 201
    body = {"public_key": public_pem(bound.key)}
    path = "/v1/keys/client-0/confirm"
    assert other(installation).operator("POST", path, json=body).status_code == 200
    accepted = bound.erase_records("r0").json()
    assert accepted["state"] == "received"
    installation.drain()
    assert state(installation, accepted["id"])["state"] == "certified"


def test_a_refusal_needs_a_reason_of_the_law_and_names_the_remedies(
    reviewed: Installation,
) -> None:
    accepted = reviewed.caller.erase_records("r1").json()
    wrong = decide(other(reviewed), accepted["ref"], "refuse", reason="transaction")  # CCPA's
    assert wrong.status_code == 409
    assert "not-identified" in wrong.json()["detail"]
    done = decide(reviewed.caller, accepted["ref"], "refuse", reason="legal-claims")
    assert done.json()["parts"][0]["outcome"] == "refused"
    shown = state(reviewed, accepted["id"])
    assert shown["state"] == "refused"
    detail = shown["history"][-1]["detail"]
    assert "Art. 17(3)(e)" in detail["reason"]
    assert "supervisory authority" in detail["notice"]
    assert "by" not in detail  # officers' names are not shown to the person
    # The record's claim is released.
    assert reviewed.caller.erase_records("r1").status_code == 202
    answer = reviewed.caller.operator("GET", f"/v1/cases/{accepted['ref']}/summary")
    key, _ = load_issuer(reviewed.services.settings)
    part = check_summary(answer.content, key.public_key()).predicate.parts[0]
    assert part.outcome == "refused"
    assert "supervisory authority" in str(part.decisions[0].notice)
    assert decide(other(reviewed), accepted["ref"], "approve").status_code == 409


def test_a_refusal_stops_what_is_queued(reviewed: Installation) -> None:
    accepted = reviewed.caller.erase_records("r1").json()
    assert decide(other(reviewed), accepted["ref"], "approve").status_code == 200
    assert state(reviewed, accepted["id"])["state"] == "received"
    done = decide(other(reviewed), accepted["ref"], "refuse", reason="legal-claims")
    assert done.status_code == 200, done.text
    assert done.json()["parts"][0]["outcome"] == "refused"
    reviewed.recover()
    reviewed.drain()
    assert events(reviewed, accepted["id"]) == ["received", "approved", "refused"]
    following = reviewed.caller.erase_records("r1").json()  # the claim is released
    assert decide(other(reviewed), following["ref"], "approve").status_code == 200
    reviewed.drain()
    assert state(reviewed, following["id"])["state"] == "certified"
    reviewed.check()


def test_a_refusal_leaves_what_a_worker_has_begun(installation: Installation) -> None:
    for ref in ("one", "two"):
        answer = installation.caller.register_model(named(), decide="at-once", ref=ref)
        assert answer.status_code == 201, answer.text
    installation.drain()
    case = opened(installation, ANN).json()
    begun, queued = case["parts"]
    values = {"id": begun["request"]}
    write(installation, "UPDATE jobs SET lease_token = 1 WHERE request_id = :id", values)
    refused = decide(installation.caller, case["ref"], "refuse", reason="legal-claims")
    assert refused.status_code == 200, refused.text
    outcomes = {one["model"]: one["outcome"] for one in refused.json()["parts"]}
    assert outcomes == {begun["model"]: "in progress", queued["model"]: "refused"}
    late = decide(installation.caller, case["ref"], "refuse", reason="legal-claims")
    assert late.status_code == 409
    assert "a worker has begun" in late.json()["detail"]
    write(installation, "UPDATE jobs SET lease_token = 0 WHERE request_id = :id", values)
    installation.drain()
    assert state(installation, begun["request"])["state"] == "certified"
    installation.check()


@contextmanager
def later(monkeypatch: pytest.MonkeyPatch, days: int) -> Iterator[None]:
    """Shift the transactions of the block this many days into the future."""
    begin = Transaction.__init__

    def begun(tx: Transaction, *args: Any, **kwargs: Any) -> None:
        begin(tx, *args, **kwargs)
        tx.now += timedelta(days=days)

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "__init__", begun)
        yield


def test_a_pause_stops_the_clock_and_an_extension_is_given_once(
    reviewed: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = reviewed.caller.erase_records("r1").json()
    ref, operator = accepted["ref"], reviewed.caller
    assert decide(operator, ref, "pause", reason="identity").json()["parts"][0]["state"] == (
        "paused"
    )
    assert decide(other(reviewed), ref, "approve").status_code == 409
    with later(monkeypatch, days=5):
        resumed = decide(operator, ref, "resume").json()
    assert resumed["parts"][0]["state"] == "awaiting-review"
    moved = state(reviewed, accepted["id"])
    days = datetime.fromisoformat(moved["due_at"]) - datetime.fromisoformat(accepted["due_at"])
    assert days // timedelta(days=1) == 5
    assert moved["history"][-1]["detail"]["due_at"] == moved["due_at"]
    assert decide(operator, ref, "extend", reason="necessary").status_code == 409  # CCPA's
    assert decide(operator, ref, "extend", reason="complexity").status_code == 200
    assert decide(operator, ref, "extend", reason="complexity").status_code == 409
    extended = state(reviewed, accepted["id"])
    assert extended["due_at"] > moved["due_at"] > accepted["due_at"]
    californian = operator.erase_records("r2", fields={"regulation": "ccpa"}).json()
    refused = decide(operator, californian["ref"], "pause", reason="identity")
    assert refused.status_code == 409
    assert "no pause" in refused.json()["detail"]


def test_a_clock_that_has_run_out_is_not_stopped(
    reviewed: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused request is not overdue, and may be extended: no pause begins after the end."""
    accepted = reviewed.caller.erase_records("r1").json()
    ref, operator = accepted["ref"], reviewed.caller
    with later(monkeypatch, days=40):
        late = decide(operator, ref, "pause", reason="identity")
        assert (late.status_code, "deadline has passed" in late.text) == (409, True)
        assert decide(operator, ref, "extend", reason="complexity").status_code == 409
    assert events(reviewed, accepted["id"]) == ["received"]


def test_a_stopped_clock_is_extended_after_the_date_on_which_it_would_have_ended(
    reviewed: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, operator = reviewed.caller.erase_records("r1").json()["ref"], reviewed.caller
    assert decide(operator, ref, "pause", reason="identity").status_code == 200
    with later(monkeypatch, days=40):
        assert decide(operator, ref, "extend", reason="complexity").status_code == 200


def test_the_days_of_a_stopped_clock_stand_still(reviewed: Installation) -> None:
    accepted = reviewed.caller.erase_records("r1").json()
    assert decide(reviewed.caller, accepted["ref"], "pause", reason="identity").is_success
    past = {"at": (utcnow() - timedelta(days=60)).replace(tzinfo=None)}
    begun = {"at": (utcnow() - timedelta(days=65)).replace(tzinfo=None)}
    write(reviewed, "UPDATE erasure_requests SET due_at = :at", past)
    write(reviewed, "UPDATE erasure_requests SET paused_at = :at", begun)
    case = reviewed.caller.operator("GET", f"/v1/cases/{accepted['ref']}").json()
    (item,) = reviewed.caller.operator("POST", "/v1/cases/search", json={}).json()["items"]
    assert (case["days_left"], case["overdue"]) == (item["days_left"], item["overdue"])
    assert item["days_left"] in (4, 5)


@pytest.mark.parametrize("column", ["paused_at", "due_at"])
def test_a_deadline_is_moved_from_what_the_log_has(reviewed: Installation, column: str) -> None:
    accepted = reviewed.caller.erase_records("r1").json()
    ref, operator = accepted["ref"], reviewed.caller
    assert decide(operator, ref, "pause", reason="identity").status_code == 200
    shift = -5000 if column == "paused_at" else 5000
    write(
        reviewed,
        f"UPDATE erasure_requests SET {column} = :at",
        {"at": (utcnow() + timedelta(days=shift)).replace(tzinfo=None)},
    )
    for decision, body in (("resume", {}), ("extend", {"reason": "complexity"})):
        assert decide(operator, ref, decision, **body).status_code == 200
    received = datetime.fromisoformat(accepted["due_at"])
    for item in state(reviewed, accepted["id"])["history"][-2:]:
        late = datetime.fromisoformat(item["detail"]["due_at"]) - received
        assert timedelta(0) <= late < timedelta(days=70)


def test_a_request_that_only_the_table_has_as_paused_is_not_resumed(
    reviewed: Installation,
) -> None:
    ref = reviewed.caller.erase_records("r1").json()["ref"]
    for change in (
        "state = 'paused', paused_at = '2020-01-01 00:00:00'",
        "regulation = 'ccpa'",
    ):
        write(reviewed, f"UPDATE erasure_requests SET {change}", {})
        answer = decide(reviewed.caller, ref, "resume")
        assert answer.json()["type"] == "urn:lethe:problem:people-changed"


def test_notes_and_names_stay_out_of_the_log(reviewed: Installation) -> None:
    accepted = reviewed.caller.erase_records("r1").json()
    ref, operator = accepted["ref"], reviewed.caller
    assert decide(operator, ref, "note", text="asked for a passport copy").status_code == 200
    assert decide(operator, ref, "assign", to="nobody of this name").status_code == 404
    with Session(reviewed.services.engine) as session:
        name = session.connection().execute(text("SELECT name FROM bearer_tokens")).scalar()
    assigned = decide(operator, ref, "assign", to=str(name)).json()
    assert assigned["parts"][0]["assignee"] == name
    details = [item["detail"] for item in assigned["timeline"]]
    assert {"by": name, "note": "asked for a passport copy"} in details
    assert "passport" not in str(state(reviewed, accepted["id"]))
    with Session(reviewed.services.engine) as session:
        leaves = session.connection().execute(text("SELECT leaf FROM log_entries")).scalars()
        assert not any(b"passport" in bytes(leaf) for leaf in leaves)


def test_no_withdrawal_is_logged_of_another_request(reviewed: Installation) -> None:
    own, another = (reviewed.caller.erase_records(one).json() for one in ("r1", "r2"))
    size = reviewed.services.ledger.latest().size
    exchange_references(reviewed.services.engine, own["id"], another["id"])
    answer = reviewed.caller.signed("DELETE", f"/v1/requests/{own['id']}")
    assert answer.json()["type"] == "urn:lethe:problem:people-changed"
    assert reviewed.services.ledger.latest().size == size
    exchange_references(reviewed.services.engine, own["id"], another["id"])
    assert reviewed.caller.signed("DELETE", f"/v1/requests/{own['id']}").status_code == 200


def test_no_decision_is_logged_of_another_request(reviewed: Installation) -> None:
    own, another = (reviewed.caller.erase_records(one).json() for one in ("r1", "r2"))
    size = reviewed.services.ledger.latest().size
    exchange_references(reviewed.services.engine, own["id"], another["id"])
    write(reviewed, "UPDATE erasure_requests SET state = 'needs-decision'", {})
    wanted = {"decision": "abandon", "why": "nobody knows"}
    path = f"/v1/requests/{own['id']}/decision"
    answer = reviewed.caller.operator("POST", path, json=wanted)
    assert answer.json()["type"] == "urn:lethe:problem:people-changed"
    assert reviewed.services.ledger.latest().size == size


def test_a_request_cools_off_and_can_be_withdrawn_meanwhile(installation: Installation) -> None:
    installation.ready(decide="at-once", cooling_off_seconds=3600)
    first = installation.caller.erase_records("r1").json()
    second = installation.caller.erase_records("r2").json()
    assert first["state"] == "cooling-off"
    withdrawn = installation.caller.signed("DELETE", f"/v1/requests/{first['id']}")
    assert withdrawn.json()["state"] == "withdrawn"
    past = {"at": (utcnow() - timedelta(hours=2)).replace(tzinfo=None)}
    write(installation, "UPDATE erasure_requests SET held_until = :at", past)
    installation.recover()
    installation.drain()
    # The table says that the time is over; the log has the time of receipt.
    assert "executed" not in events(installation, second["id"])
    assert state(installation, second["id"])["state"] == "awaiting-review"


def test_an_operator_withdraws_what_they_submitted_for_a_person(
    installation: Installation,
) -> None:
    assert installation.caller.register_model(named(), decide="review").status_code == 201
    assert installation.caller.register_key().status_code == 201
    installation.drain()
    case = opened(installation, ANN).json()
    part = case["parts"][0]
    path = f"/v1/requests/{part['request']}"
    signed = installation.caller.erase_records("r2").json()["id"]
    auditor = replace(installation.caller, token=make_token(installation.services, "auditor"))
    for caller, own in (
        (other(installation), path),  # another operator
        (auditor, path),
        (installation.caller, f"/v1/requests/{signed}"),  # a key signed it
    ):
        assert caller.operator("DELETE", own).status_code == 403
    assert (
        replace(installation.caller, token="none").operator("DELETE", path).status_code == 401
    )
    assert installation.caller.operator("DELETE", "/v1/requests/x").status_code == 404
    # The tables can name another submitter; the log does not.
    write(installation, "UPDATE erasure_requests SET keyid = NULL", {})
    assert installation.caller.operator("DELETE", f"/v1/requests/{signed}").status_code == 403
    for _ in range(2):  # the first response may be lost
        answer = installation.caller.operator("DELETE", path)
        assert answer.status_code == 200, answer.text
        assert answer.json()["state"] == "withdrawn"
        assert events(installation, part["request"]) == ["received", "on-behalf", "withdrawn"]
    # Operators' names are not shown to the person.
    assert answer.json()["history"][-1]["detail"] == {}
    shown = installation.caller.operator("GET", f"/v1/cases/{case['ref']}").json()
    assert shown["parts"][0]["outcome"] == "withdrawn"
    assert {"by": case["opened_by"]} in [item["detail"] for item in shown["timeline"]]
    summary = installation.caller.operator("GET", f"/v1/cases/{case['ref']}/summary")
    key, _ = load_issuer(installation.services.settings)
    (answered,) = check_summary(summary.content, key.public_key()).predicate.parts
    assert (answered.outcome, answered.decisions) == ("withdrawn", ())
    installation.drain()
    assert opened(installation, ANN).json()["parts"][0]["outcome"] == "in progress"  # released


def test_an_operator_cannot_withdraw_once_a_worker_has_begun(
    installation: Installation,
) -> None:
    assert installation.caller.register_model(named(), decide="at-once").status_code == 201
    installation.drain()
    case = opened(installation, ANN).json()
    request = case["parts"][0]["request"]
    write(installation, "UPDATE jobs SET lease_token = 1 WHERE kind = 'erase'", {})
    write(installation, "UPDATE erasure_requests SET state = 'executing'", {})
    path = f"/v1/requests/{request}"
    assert installation.caller.operator("DELETE", path).status_code == 409
    assert events(installation, request) == ["received", "on-behalf"]
    write(installation, "UPDATE jobs SET lease_token = 0 WHERE kind = 'erase'", {})
    write(installation, "UPDATE erasure_requests SET state = 'received'", {})
    installation.drain()
    assert state(installation, request)["state"] == "certified"
    refused = installation.caller.operator("DELETE", path)
    assert refused.json()["type"] == "urn:lethe:problem:not-withdrawable"
    installation.check()
