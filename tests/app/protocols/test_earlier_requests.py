"""A person whose records somebody else's request erases: what is signed when that one ends."""

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import Session, select

from app import metrics, steps
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.protocols.cases import open_all
from app.protocols.opendsr import routes
from app.purge import retention
from app.reconcile.case_parts import logged_parts
from app.reconcile.fsck.cases import UNLIKE
from app.reconcile.fsck.run import fsck
from app.service import on_behalf, parts
from app.service.context import open_services
from app.service.desk import opening, people
from app.service.desk.cases import show
from lethe.identity import digests
from models import Callback, Case, ErasureRequest, Model, Record, Subject
from models.database.types import utcnow
from tests.app.ledger.samples import tamper
from tests.app.notices.receiver import Receiver
from tests.app.protocols.test_callbacks import calling as calling  # a fixture
from tests.app.protocols.test_callbacks import receiver as receiver  # a fixture
from tests.app.protocols.test_callbacks import statuses, turn
from tests.app.protocols.test_opendsr import ID, Controller
from tests.doubles.dispatcher import STAGES
from tests.installation import Installation
from tests.small import Caller, pack, rows
from tests.workers.jobs.attempts.test_decisions import decide, spoil
from tests.workers.jobs.desk.test_cases import opened, outcomes, shown
from tests.workers.jobs.desk.test_people import ANN, BOB, named, packed, write
from workers.families.ridge.stored import decode_block

OTHER = "ann's-other@example.org"


def erase(at: Installation, *records: str, model: str = "one") -> str:
    """Submit a request of somebody else for records; return its id."""
    body = {"model": model, "scope": {"level": "sample", "records": list(records)}}
    answer = at.caller.signed("POST", "/v1/requests", json.dumps(body).encode())
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def withdraw(at: Installation, request: str) -> None:
    answer = at.caller.signed("DELETE", f"/v1/requests/{request}")
    assert answer.status_code == 200, answer.text


def asked(at: Installation, **changes: Any) -> Controller:
    """Ask for Ann's erasure over OpenDSR."""
    controller = Controller(at)
    answer = controller.ask(**changes)
    assert answer.status_code == 201, answer.text
    return controller


def answers(at: Installation, ref: str) -> list[tuple[str, bool]]:
    """Return the outcome of each part in a case's signed answer, and if it has a certificate."""
    answer = shown(at, ref, "/summary")
    assert answer.status_code == 200, answer.text
    parts = json.loads(b64decode(answer.json()["payload"]))["predicate"]["parts"]
    return [(part["outcome"], part["certificate"] is not None) for part in parts]


def extend(at: Installation, ref: str) -> dict[str, Any]:
    """Extend the deadline of a request or case; return the case."""
    body = {"reason": "complexity"}
    answer = at.caller.operator("POST", f"/v1/cases/{ref}/extend", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def search_of(at: Installation, **wanted: Any) -> list[dict[str, Any]]:
    """Return the items of the officers' list."""
    return list(at.caller.operator("POST", "/v1/cases/search", json=wanted).json()["items"])


@contextmanager
def at_time(monkeypatch: pytest.MonkeyPatch, now: datetime) -> Iterator[None]:
    """Let the transactions of the block be at a time."""
    begin = Transaction.__init__

    def begun(tx: Transaction, *args: Any, **kwargs: Any) -> None:
        begin(tx, *args, **kwargs)
        tx.now = now

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "__init__", begun)
        yield


def the_case(at: Installation) -> str:
    with Session(at.services.engine) as session:
        return session.exec(select(Case.ref)).one()


def states(at: Installation) -> list[str]:
    with Session(at.services.engine) as session:
        return sorted(session.exec(select(ErasureRequest.state)))


def held(at: Installation) -> set[str]:
    """Return those of Ann's records that the model has."""
    with Session(at.services.engine) as session:
        return set(session.exec(select(Record.record))) & {"r0", "r5"}


def found(at: Installation, email: str = ANN) -> dict[str, Any]:
    """Return what a lookup says of a person, as `lethe drop process` reads it."""
    controller = {"kind": "email", "sha256": sha256_of(email)}
    answer = at.caller.operator("POST", "/v1/people/find", json={"person": controller})
    (item,) = answer.json()["items"]
    return dict(item)


def sha256_of(email: str) -> str:
    return digests("email", email)["sha256"].hex()


def test_an_erasure_that_is_not_judged_is_followed(serving: Installation) -> None:
    erase(serving, "r0", "r5")
    job, _ = serving.dispatcher.nudges.popleft()
    STAGES["execute"](serving.services, job)
    assert held(serving) == set()
    controller = asked(serving)
    assert controller.status() == "in_progress"
    assert shown(serving, the_case(serving), "/summary").status_code == 409
    assert (found(serving)["erased"], found(serving)["uncertified"]) == (0, 2)
    serving.drain()
    assert controller.status() == "completed"
    assert answers(serving, the_case(serving)) == [("certified", True)]
    assert (found(serving)["erased"], found(serving)["uncertified"]) == (2, 0)
    again = opened(serving, ANN).json()
    assert outcomes(again) == {"one": "erased before"}
    assert answers(serving, again["ref"]) == [("erased before", True)]
    serving.check()


def test_an_erasure_that_was_refuted_and_abandoned_erased_nothing(
    serving: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    request = erase(serving, "r0", "r5")
    serving.drain()
    monkeypatch.undo()
    early = opened(serving, ANN).json()  # while the request waits for a decision
    assert outcomes(early) == {"one": "in progress"}
    assert decide(serving, request, "abandon") == 200
    controller = asked(serving)
    with Session(serving.services.engine) as session:
        stored = {
            record
            for one in session.exec(select(Subject))
            if one.wrapped_key and one.id is not None
            for record in decode_block(serving.services.features.load(session, one.id)).records
        }
        assert session.exec(select(Model.state)).one() == "quarantined"
    assert stored >= {"r0", "r5"}
    assert controller.status() == "in_progress"  # an operator has to decide
    with Session(serving.services.engine) as session:
        refs = list(session.exec(select(Case.ref)))
    assert [answers(serving, ref) for ref in refs] == [[("failed", False)]] * 2
    assert (found(serving)["erased"], found(serving)["uncertified"]) == (0, 2)


@pytest.mark.parametrize("emails", [(), ("", ANN)])
def test_records_that_came_back_are_erased_again(
    serving: Installation, emails: tuple[str, ...]
) -> None:
    """Without identities, or with some: the earlier ones are theirs again."""
    erase(serving, "r0", "r5")
    serving.drain()
    client = Caller(serving.caller.http, serving.caller.token, keyid="client")
    client.register_key(role="client", client="c0")
    arrays = {name: values[[0, 5]] for name, values in rows().items()}
    if emails:
        arrays["identity_email"] = packed(*emails)
    path, kind = "/v1/models/one/contributions?add_back=true", "application/x-npz"
    assert client.signed("POST", path, pack(arrays), content_type=kind).status_code == 202
    serving.drain()
    assert held(serving) == {"r0", "r5"}
    assert found(serving)["records"] == ["r0", "r5"]
    controller = asked(serving)
    assert controller.status() != "completed"
    serving.drain()
    assert (controller.status(), held(serving)) == ("completed", set())
    assert states(serving) == ["certified", "certified"]
    serving.check()


def test_rows_erased_before_they_kept_a_tag_stop_the_answer_if_records_came_back(
    serving: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a service erased them that kept none: no tag, so nothing can be linked again."""
    monkeypatch.setattr(
        people, "record_tag", lambda *_: type("Untagged", (), {"hex": lambda _: None})()
    )
    erase(serving, "r0", "r5")
    serving.drain()
    monkeypatch.undo()
    assert outcomes(opened(serving, ANN).json()) == {"one": "erased before"}
    client = Caller(serving.caller.http, serving.caller.token, keyid="client")
    client.register_key(role="client", client="c0")
    arrays = {name: values[[0, 5]] for name, values in rows().items()}
    path, kind = "/v1/models/one/contributions?add_back=true", "application/x-npz"
    assert client.signed("POST", path, pack(arrays), content_type=kind).status_code == 202
    serving.drain()
    answer = opened(serving, ANN)
    assert answer.status_code == 409
    assert "import the identities" in answer.json()["detail"]
    assert found(serving)["uncertified"] == 2
    identity = {"kind": "email", "sha256": sha256_of(ANN)}
    imported = [{"record": one, "person": identity} for one in ("r0", "r5")]
    body = {"model": "one", "identities": imported}
    assert serving.caller.operator("POST", "/v1/people/import", json=body).status_code == 200
    case = opened(serving, ANN).json()
    serving.drain()
    assert outcomes(shown(serving, case["ref"]).json()) == {"one": "certified"}
    assert outcomes(opened(serving, ANN).json()) == {"one": "erased before"}


def test_who_withdraws_does_not_cancel_the_request_of_another(serving: Installation) -> None:
    request = erase(serving, "r0", "r5")
    controller = asked(serving)
    second = opened(serving, ANN).json()
    history = serving.caller.http.get(f"/v1/requests/{request}").json()["history"]
    assert [one["event"] for one in history] == ["request.received"]  # who asks is not shown
    withdraw(serving, request)
    told = serving.caller.http.get(f"/v1/requests/{request}/events").text
    assert "request.withdrawn" in told
    assert "request.followed" not in told
    assert controller.status() == "pending"
    assert states(serving) == ["received", "withdrawn"]
    serving.drain()
    assert (controller.status(), held(serving)) == ("completed", set())
    assert answers(serving, second["ref"]) == [("certified", True)]
    assert states(serving) == ["certified", "withdrawn"]
    serving.check()


def test_a_request_of_its_own_can_be_withdrawn_and_is_then_cancelled(
    serving: Installation,
) -> None:
    request = erase(serving, "r0", "r5")
    controller = asked(serving)
    withdraw(serving, request)
    due = shown(serving, the_case(serving)).json()["due_at"]
    assert controller.call("DELETE", f"/requests/{ID}").status_code == 202
    assert controller.status() == "cancelled"
    assert shown(serving, the_case(serving)).json()["due_at"] == due
    serving.drain()
    assert held(serving) == {"r0", "r5"}
    serving.check()


def test_a_refusal_is_not_that_of_who_follows(serving: Installation) -> None:
    caller = serving.caller
    assert caller.register_model(named(), ref="held", decide="review").status_code == 201
    serving.drain()
    request = erase(serving, "r0", "r5", model="held")
    case = opened(serving, ANN, models=["held"]).json()
    body = {"reason": "unfounded"}
    refused = caller.operator("POST", f"/v1/cases/{request}/refuse", json=body)
    assert refused.status_code == 200, refused.text
    now = shown(serving, case["ref"]).json()
    (part,) = now["parts"]
    assert (part["outcome"], part["state"]) == ("in progress", "awaiting-review")
    assert part["request"] != request
    assert now["due_at"] == case["due_at"]
    # Its submitter is the case's opener, not who had submitted the other.
    assert caller.operator("POST", f"/v1/cases/{case['ref']}/approve").status_code == 403
    serving.check()


def test_a_case_has_its_own_deadline_while_it_follows_another_request(
    serving: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extension of the other one was told to its requester, and to nobody else."""
    with at_time(monkeypatch, utcnow() - timedelta(days=40)):
        request = erase(serving, "r0", "r5")
        controller = asked(serving)
        case = shown(serving, the_case(serving)).json()
        extend(serving, request)
    now = shown(serving, case["ref"]).json()
    assert (now["due_at"], now["overdue"]) == (case["due_at"], True)
    assert -11 <= now["days_left"] <= -9
    told = controller.call("GET", f"/requests/{ID}").json()["expected_completion_time"]
    assert told == case["due_at"]
    (item,) = search_of(serving, overdue=True)
    assert (item["ref"], item["due_at"]) == (case["ref"], case["due_at"])
    assert (item["state"], item["days_left"]) == ("received", now["days_left"])
    assert search_of(serving, state="answered") == []
    assert counted(serving) == (1, 0)
    move(serving, case["ref"], utcnow() + timedelta(days=3))
    assert search_of(serving, overdue=True) == []
    assert counted(serving) == (0, 1)


def counted(at: Installation) -> tuple[float, ...]:
    """Return the metrics of overdue requests and cases, and of those that are due soon."""
    at.services.seen.pop("metrics", None)
    values = {one.name: one.samples for one in metrics.read(at.services)}
    return values["lethe_requests_overdue"][()], values["lethe_requests_due_soon"][()]


def move(at: Installation, ref: str, due: datetime) -> None:
    """Write another deadline into the row of a case."""
    with Session(at.services.engine) as session:
        session.get_one(Case, ref).due_at = due
        session.commit()


def test_a_signed_answer_has_no_decision_on_the_deadline_of_another_request(
    serving: Installation,
) -> None:
    request = erase(serving, "r0", "r5")
    ref = str(opened(serving, ANN).json()["ref"])
    extend(serving, request)
    serving.drain()
    own, other = (
        [
            one["decision"]
            for part in json.loads(b64decode(answer.json()["payload"]))["predicate"]["parts"]
            for one in part["decisions"]
        ]
        for answer in (shown(serving, one, "/summary") for one in (request, ref))
    )
    assert (own, other) == (["extended"], [])


def test_an_extension_of_a_request_of_its_own_counts_from_the_receipt_of_the_case(
    serving: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the day when it took the place of the followed one."""
    received = datetime(2027, 1, 15, 12, tzinfo=UTC)
    with at_time(monkeypatch, received):
        request = erase(serving, "r0", "r5")
        ref = str(opened(serving, ANN).json()["ref"])
    with at_time(monkeypatch, received + timedelta(days=17)):
        withdraw(serving, request)
        assert extend(serving, ref)["due_at"] == "2027-04-15T12:00:00Z"


def test_who_withdraws_a_request_ends_the_whole_request_and_no_earlier_one(
    serving: Installation,
) -> None:
    """Two identities of one person, and a second request for her by the same agent."""
    other = [
        {"record": one, "person": {"kind": "email", "sha256": sha256_of(OTHER)}}
        for one in ("r0", "r5")
    ]
    body = {"model": "one", "identities": other}
    assert serving.caller.operator("POST", "/v1/people/import", json=body).status_code == 200
    two = [
        {"identity_type": "email", "identity_value": email, "identity_format": "raw"}
        for email in (ANN, OTHER)
    ]
    controller = asked(serving, subject_identities=two)
    again = ID[:-1] + "0"
    assert controller.ask(subject_request_id=again).status_code == 201
    refused = controller.call("DELETE", f"/requests/{again}")
    assert refused.status_code == 403
    assert "earlier request" in refused.json()["error"]["message"]
    assert [controller.status(one) for one in (ID, again)] == ["pending"] * 2
    assert controller.call("DELETE", f"/requests/{ID}").status_code == 202
    assert [controller.status(one) for one in (ID, again)] == ["cancelled", "pending"]


def test_cases_that_share_a_record_get_one_request(serving: Installation) -> None:
    """Of three cases, two share r5; a record is claimed by one request."""
    shared = [
        {"record": one, "person": {"kind": "email", "sha256": sha256_of(OTHER)}}
        for one in ("r5", "r9")
    ]
    body = {"model": "one", "identities": shared}
    assert serving.caller.operator("POST", "/v1/people/import", json=body).status_code == 200
    request = erase(serving, "r0", "r1", "r2", "r5", "r9")
    refs = [opened(serving, email).json()["ref"] for email in (ANN, BOB, OTHER)]
    withdraw(serving, request)
    with Session(serving.services.engine) as session:
        scopes = [
            one.scope["records"]
            for one in session.exec(select(ErasureRequest))
            if one.state != "withdrawn"
        ]
    assert sorted(scopes) == [["r0", "r5", "r9"], ["r1"]]
    parts = [shown(serving, ref).json()["parts"][0] for ref in refs]
    assert [part["records"] for part in parts] == [2, 1, 2]
    serving.drain()
    assert [answers(serving, ref) for ref in refs] == [[("certified", True)]] * 3
    serving.check()


def test_a_transaction_that_dies_withdraws_nothing(
    serving: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = erase(serving, "r0", "r5")
    controller = asked(serving)

    def fails(*_: Any) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(on_behalf, "log_part", fails)
    assert serving.caller.signed("DELETE", f"/v1/requests/{request}").status_code == 500
    monkeypatch.undo()
    assert (states(serving), controller.status()) == (["received"], "pending")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE erasure_requests SET state = 'withdrawn'",
        "UPDATE erasure_requests SET state = 'withdrawn', case_ref = (SELECT ref FROM cases)",
        "UPDATE erasure_requests SET state = 'refused', case_ref = (SELECT ref FROM cases)",
    ],
)
def test_a_forged_end_of_the_followed_request_cancels_nothing(
    serving: Installation, statement: str
) -> None:
    erase(serving, "r0", "r5")
    controller = asked(serving)
    write(serving, statement)
    assert controller.status() == "in_progress"
    answer = shown(serving, the_case(serving), "/summary")
    assert answer.json()["type"] == "urn:lethe:problem:people-changed"


def test_parts_from_before_the_own_request_cancel_nothing(serving: Installation) -> None:
    request = erase(serving, "r0", "r5")
    controller = asked(serving)
    write(serving, "CREATE TABLE kept AS SELECT parts FROM cases")
    withdraw(serving, request)
    write(serving, "UPDATE cases SET parts = (SELECT parts FROM kept)")
    unlike(serving, controller)
    serving.drain()  # the own request is not lost
    assert held(serving) == set()
    unlike(serving, controller)


def unlike(at: Installation, controller: Controller) -> None:
    """The answer would be signed: "failed", also of a person whose records are erased."""
    ref = the_case(at)
    for path in ("", "/summary"):
        assert shown(at, ref, path).json()["type"] == "urn:lethe:problem:people-changed"
    assert controller.call("GET", f"/requests/{ID}").status_code == 500
    assert UNLIKE in {one.detail for one in fsck(at.services.ledger).findings}


def test_a_contact_is_kept_while_the_own_request_is_open(serving: Installation) -> None:
    """By the parts from before, nothing of the case is open."""
    request = erase(serving, "r0", "r5")
    ref = str(opened(serving, ANN).json()["ref"])
    write(serving, "CREATE TABLE kept AS SELECT parts FROM cases")
    withdraw(serving, request)
    write(serving, "UPDATE cases SET parts = (SELECT parts FROM kept)")
    write(serving, "UPDATE erasure_requests SET case_ref = NULL")
    closed = serving.caller.operator("POST", f"/v1/cases/{ref}/close")
    assert closed.json()["type"] == "urn:lethe:problem:people-changed"
    periods = {"contact_retention_days": -400}
    late = serving.settings.model_copy(update=periods)
    done = retention.run(replace(serving.services, settings=late))
    assert (done.removed, done.differs) == ({}, {"contact": 1})


@pytest.mark.parametrize("kind", ["contact", "case"])
def test_nothing_of_a_case_ends_while_it_follows_an_open_request(
    serving: Installation, kind: str
) -> None:
    """Whoever waits for the other's end could not be answered, nor get a request of their own."""
    request = erase(serving, "r0", "r5")
    ref = str(opened(serving, ANN).json()["ref"])
    named = {"contact": "contact_retention_days", "case": "request_retention_days"}
    late = serving.settings.model_copy(update={named[kind]: -400})
    services = replace(serving.services, settings=late)
    assert (retention.plan(services).removed, retention.run(services).removed) == ({}, {})
    write(serving, "CREATE TABLE kept AS SELECT state FROM erasure_requests")
    write(serving, "UPDATE erasure_requests SET state = 'withdrawn'")
    done = retention.run(services)
    assert (done.removed, done.differs[kind]) == ({}, 1)
    write(serving, "UPDATE erasure_requests SET state = (SELECT state FROM kept)")
    withdraw(serving, request)
    assert shown(serving, ref).json()["parts"][0]["state"] == "received"


def test_callbacks_follow_the_request_of_its_own(
    calling: Installation, receiver: Receiver
) -> None:
    request = erase(calling, "r0", "r5")
    asked(calling, status_callback_urls=[receiver.url])
    turn(calling)
    withdraw(calling, request)
    with Session(calling.services.engine) as session:
        assert len(session.exec(select(Callback.ref)).all()) == 2
    turn(calling)
    calling.drain()
    turn(calling)
    turn(calling)
    told = statuses(calling, receiver)
    assert (told[0], told[-1]) == ("pending", "completed")
    assert "cancelled" not in told


def test_callbacks_follow_a_request_of_its_own_that_came_before_they_were_stored(
    calling: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process ends the followed request between the case and its callbacks."""
    request, honest = erase(calling, "r0", "r5"), open_all

    def then_withdrawn(*call: Any) -> Any:
        views = honest(*call)
        withdraw(calling, request)
        return views

    monkeypatch.setattr(routes, "open_all", then_withdrawn)
    asked(calling, status_callback_urls=[receiver.url])
    turn(calling)
    calling.drain()
    turn(calling)
    turn(calling)
    assert statuses(calling, receiver) == ["pending", "completed"]


def test_a_case_that_is_read_while_the_followed_request_ends_is_as_it_was_logged(
    serving: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot has the part from before, and the log the one in its place."""
    request, honest = erase(serving, "r0", "r5"), logged_parts
    asked(serving)
    ended: list[str] = []

    def after_the_end(ledger: Ledger, case: Case) -> Any:
        if not ended:
            ended.append(request)
            withdraw(serving, request)
        return honest(ledger, case)

    monkeypatch.setattr(parts, "logged_parts", after_the_end)
    answer = shown(serving, the_case(serving), "")
    assert (answer.status_code, ended) == (200, [request]), answer.text
    assert answer.json()["parts"][0]["state"] == "received"


def test_a_case_that_another_process_is_about_to_sign_is_as_it_was_logged(
    serving: Installation,
) -> None:
    other, seen = open_services(serving.settings), list[str]()

    def look(step: str) -> None:
        with other.reading() as session:
            ref = session.exec(select(Case.ref)).first()
        if step == "ledger.committed" and ref is not None and not seen:
            seen.append(show(other, ref).state)

    steps.install(look)
    try:
        asked(serving)
    finally:
        steps.install(None)
        other.close()
    assert seen == ["open"]
    serving.check()


def test_a_part_of_a_service_that_did_not_look_is_not_signed(
    serving: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case that was opened before this was checked has "erased before" in its row."""
    monkeypatch.setattr(opening, "certified_at", lambda *_: 0)
    erase(serving, "r0", "r5")
    job, _ = serving.dispatcher.nudges.popleft()
    STAGES["execute"](serving.services, job)
    controller = asked(serving)
    assert controller.status() == "in_progress"
    serving.drain()
    assert controller.status() == "completed"
    assert answers(serving, the_case(serving)) == [("erased before", True)]


def test_column_of_events_does_not_make_a_certificate(serving: Installation) -> None:
    erase(serving, "r0", "r5")
    job, _ = serving.dispatcher.nudges.popleft()
    STAGES["execute"](serving.services, job)
    event = (
        "UPDATE log_entries SET event = 'request.certified' WHERE event = 'request.executed'"
    )
    tamper(serving.services.engine, event)
    assert asked(serving).status() == "in_progress"
    assert found(serving)["erased"] == 0
