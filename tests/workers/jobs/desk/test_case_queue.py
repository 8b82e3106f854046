"""The officers' queue: order, filters, pages, and its queries for 2,000 requests."""

import base64
import csv
import io
import json
import random
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest
from click.testing import CliRunner
from sqlalchemy import event, insert, text
from sqlmodel import Session, select

from app.reconcile.fsck.run import fsck
from app.schemas.people import QueueQuery
from app.schemas.requests import State
from app.service.desk import (
    queue as case_queue,
)
from app.service.desk import (
    reminders,
)
from lethe.cli.case import case as command
from lethe.cli.request import request
from models import Case, ErasureRequest, Model
from models.database.types import utcnow
from tests.app.protocols.test_earlier_requests import at_time
from tests.installation import Installation, make_token
from tests.workers.jobs.desk.test_cases import opened, person
from tests.workers.jobs.desk.test_people import ANN, BOB, named, write


@pytest.fixture
def queue(installation: Installation) -> Installation:
    """Ann's case and three requests signed by keys, one of them for Bob's record."""
    assert installation.caller.register_key().status_code == 201
    answer = installation.caller.register_model(named(), decide="review")
    assert answer.status_code == 201, answer.text
    installation.drain()
    assert opened(installation, ANN).status_code == 201
    for record in ("r1", "r2", "r3"):
        assert installation.caller.erase_records(record).status_code == 202
    return installation


def search(queue: Installation, **wanted: Any) -> Any:
    """Return the response to a search."""
    return queue.caller.operator("POST", "/v1/cases/search", json=wanted)


def found(queue: Installation, **wanted: Any) -> list[dict[str, Any]]:
    """Return the items of the first page."""
    answer = search(queue, **wanted)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def move(queue: Installation, ref: str, **values: Any) -> None:
    """Change a request's row."""
    with Session(queue.services.engine) as session:
        row = session.exec(select(ErasureRequest).where(ErasureRequest.ref == ref)).one()
        for name, value in values.items():
            setattr(row, name, value)
        session.add(row)
        session.commit()


def test_what_waits_is_listed_in_every_way_of_submission(queue: Installation) -> None:
    items = found(queue, state="awaiting-review")
    assert len(items) == 4
    (on_behalf,) = (one for one in items if one["case"] is not None)
    assert {one["requester"] for one in items if one["case"] is None} == {"alice"}
    assert found(queue, requester=on_behalf["requester"]) == [on_behalf]
    assert len(found(queue, requester="alice")) == 3
    assert [one["ref"] for one in found(queue, person=person(ANN))] == [on_behalf["ref"]]
    assert len(found(queue, person=person(BOB))) == 1
    assert found(queue, person=person("x@y.z")) == []
    assert found(queue, state="certified") == []
    nothing = opened(queue, "x@y.z").json()
    (answered,) = found(queue, state="answered")  # it waits to be answered and closed
    assert answered["ref"] == nothing["ref"]
    assert len(found(queue)) == 5


def test_a_requester_without_a_rendering_is_refused_on_either_database(
    installation: Installation,
) -> None:
    """PostgreSQL cannot compare NUL: the service would answer 500."""
    for name in ("\u0000", "ann\u0000", "a\nb"):
        answer = search(installation, requester=name)
        assert (answer.status_code, answer.json()["type"]) == (
            422,
            "urn:lethe:problem:body-invalid",
        )


def test_it_is_sorted_by_days_left_in_pages_that_overlap_nowhere(queue: Installation) -> None:
    refs = [one["ref"] for one in found(queue)]
    now = utcnow()
    for days, ref in enumerate(reversed(refs)):
        move(queue, ref, due_at=now + timedelta(days=days - 1, hours=1))
    assert [one["days_left"] for one in found(queue)] == [-1, 0, 1, 2]
    seen, after = [], None
    while True:
        page = search(queue, limit=1, after=after).json()
        seen += [one["ref"] for one in page["items"]]
        if (after := page["next"]) is None:
            break
    assert seen == list(reversed(refs))
    assert [one["overdue"] for one in found(queue, overdue=True)] == [True]
    assert len(found(queue, overdue=False)) == 3
    assert len(found(queue, due_within=1)) == 2
    move(queue, seen[0], state="paused", paused_at=now)
    assert found(queue, overdue=True) == []  # its deadline is suspended


def test_an_answered_case_is_not_overdue(
    queue: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the case itself, the daily digest and the metric have it."""
    with at_time(monkeypatch, utcnow() - timedelta(days=40)):
        ref = opened(queue, "x@y.z").json()["ref"]
    shown = queue.caller.operator("GET", f"/v1/cases/{ref}").json()
    assert (shown["state"], shown["overdue"]) == ("answered", False)
    assert found(queue, overdue=True) == []
    assert found(queue, state="answered", overdue=True) == []
    (listed,) = (one for one in found(queue, overdue=False) if one["ref"] == ref)
    assert not listed["overdue"]
    assert listed["days_left"] < 0
    assert found(queue, state="answered", overdue=False) == [listed]


def test_the_list_opens_nothing_that_is_sealed(queue: Installation) -> None:
    """A scope that cannot be decrypted hides no deadline, and long lists are quick."""
    listed = found(queue)
    write(queue, "UPDATE erasure_requests SET scope = 'damaged'")
    assert found(queue) == listed


def test_an_unknown_filter_or_value_is_an_error(installation: Installation) -> None:
    for wanted, status in (
        ({"state": "waiting"}, 422),
        ({"colour": "red"}, 422),
        ({"due_within": -1}, 422),
        ({"model": "nowhere"}, 404),
        ({"requester": "nobody"}, 404),
        ({"after": "x"}, 400),
    ):
        assert search(installation, **wanted).status_code == status, wanted


def planned(queue: Installation, wanted: QueueQuery, mark: str, *settings: str) -> str:
    """Return how the database would read the one statement of a search that has a mark."""
    engine, sent = queue.services.engine, list[tuple[str, Any]]()

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        case_queue.search(queue.services, wanted)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    ((statement, parameters),) = (one for one in sent if mark in one[0])
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}[engine.dialect.name]
    with engine.connect() as connection:
        for setting in settings:
            connection.execute(text(setting))
        return " ".join(map(str, connection.exec_driver_sql(explain + statement, parameters)))


def test_a_page_reads_the_rows_that_it_shows(queue: Installation) -> None:
    services = queue.services
    with Session(services.engine) as session:
        model = session.exec(select(Model.ref)).one()
        like = session.exec(select(ErasureRequest)).first()
        assert like is not None
        rows = []
        for number in range(2000):
            fields = like.model_dump()
            fields |= {"id": str(uuid.uuid4()), "ref": str(uuid.uuid4()), "case_ref": None}
            fields["due_at"] = like.due_at + timedelta(minutes=number)
            fields["state"] = ("certified", "awaiting-review", "verifying")[number % 3]
            rows.append(fields)
        session.connection().execute(insert(ErasureRequest), rows)
        session.commit()
        session.connection().execute(text("ANALYZE"))
        session.commit()
    for filters in ({}, {"model": model}, {"due_within": 40}):
        wanted = {**filters, "state": "awaiting-review", "limit": 50}
        plan = planned(queue, QueueQuery.model_validate(wanted), "erasure_requests.state = ")
        assert "state_due_at_ref" in plan, plan
        assert "TEMP B-TREE" not in plan, plan  # it is read in index order
        assert "Sort" not in plan, plan
    page = case_queue.search(services, QueueQuery(limit=50))
    assert len(page.items) == 50
    dues = [one.due_at for one in page.items]
    assert dues == sorted(dues)


ENDED = ("certified", "failed", "refused", "withdrawn")


def scattered(queue: Installation, seed: int) -> list[str]:
    """Add open, answered and closed cases, many due at one time; return the expected order.

    The order is computed from the rows alone.
    """
    draw = random.Random(seed)
    with Session(queue.services.engine) as session:
        like = session.exec(select(ErasureRequest)).first()
        assert like is not None
        base = utcnow().replace(microsecond=0)
        cases, requests = [], []
        for number in range(80):
            due = base + timedelta(days=draw.randrange(8))
            ref = str(uuid.UUID(int=draw.getrandbits(128)))
            cases.append(
                {
                    "ref": ref,
                    "opened_by": "somebody",
                    "regulation": "gdpr",
                    "parts": [],
                    "received_at": base,
                    "due_at": due,
                    "closed_at": base if number % 9 == 0 else None,
                }
            )
            for _ in range(draw.randrange(3)):
                state = draw.choice((*ENDED, "awaiting-review", "paused", "verifying"))
                fields = like.model_dump() | {"id": str(uuid.UUID(int=draw.getrandbits(128)))}
                fields |= {"ref": str(uuid.UUID(int=draw.getrandbits(128))), "case_ref": ref}
                extended = timedelta(days=draw.choice((0, 0, 5)))
                fields |= {"state": state, "due_at": due + extended, "keyid": None}
                fields |= {"paused_at": base if state == "paused" else None}
                requests.append(fields)
        session.connection().execute(insert(Case), cases)
        session.connection().execute(insert(ErasureRequest), requests)
        session.commit()
        every = session.exec(select(ErasureRequest)).all()
        listed = [
            (one.due_at, one.ref)
            for one in every
            if one.state not in ("certified", "refused", "withdrawn")
        ]
        going_on = {one.case_ref for one in every if one.state not in ENDED}
        listed += [
            (one.due_at, one.ref)
            for one in session.exec(select(Case))
            if one.closed_at is None and one.ref not in going_on
        ]
    return [ref for _, ref in sorted(listed)]


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_pages_list_answered_cases_in_their_places_and_miss_none(
    queue: Installation, limit: int
) -> None:
    expected = scattered(queue, limit)
    seen: list[str] = []
    after = None
    while True:
        page = case_queue.search(queue.services, QueueQuery(limit=limit, after=after))
        assert len(page.items) <= limit
        seen += [one.ref for one in page.items]
        if (after := page.next) is None:
            break
        assert len(page.items) == limit
    assert seen == expected


def test_whether_a_case_is_answered_follows_its_requests(queue: Installation) -> None:
    """Also if one statement changes many requests."""
    (on_behalf,) = (one for one in found(queue) if one["case"] is not None)
    ref = on_behalf["case"]
    for state in get_args(State):
        move(queue, on_behalf["ref"], state=state)
        listed = [one["ref"] for one in found(queue, state="answered")]
        assert listed == ([ref] if state in ENDED else []), state
        assert stored_as_answered(queue) == {ref: state in ENDED}
    write(queue, f"UPDATE erasure_requests SET case_ref = '{ref}'")
    for state in ("certified", "verifying", "failed"):
        write(queue, f"UPDATE erasure_requests SET state = '{state}'")
        assert stored_as_answered(queue) == {ref: state in ENDED}
    move(queue, on_behalf["ref"], state="awaiting-review")  # one of the four
    assert stored_as_answered(queue) == {ref: False}


@pytest.mark.parametrize("few", [0, case_queue.FEW])
def test_a_requester_is_found_by_the_cases_they_opened(
    queue: Installation, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """However many cases they have."""
    monkeypatch.setattr(case_queue, "FEW", few)
    (own,) = (one for one in found(queue) if one["case"] is not None)
    assert found(queue, requester=own["requester"]) == [own]
    write(queue, "UPDATE cases SET opened_by = 'somebody else'")
    assert found(queue, requester=own["requester"]) == []


def test_a_case_that_follows_an_earlier_request_is_answered_with_it(
    queue: Installation,
) -> None:
    followers = {opened(queue, ANN).json()["ref"] for _ in range(3)}
    (request,) = (one for one in found(queue, state="awaiting-review") if one["case"])
    # Their only request is that of the first case.
    nothing = opened(queue, "x@y.z").json()["ref"]
    assert [one["ref"] for one in found(queue, state="answered", limit=1)] == [nothing]
    assert search(queue, state="answered", limit=1).json()["next"] is None
    move(queue, request["ref"], state="refused")
    listed = {one["ref"] for one in found(queue, state="answered")}
    assert listed == {request["case"], nothing, *followers}


@pytest.mark.parametrize("planted", [True, False])
def test_a_case_that_only_the_column_calls_answered_is_not_listed(
    queue: Installation, planted: bool
) -> None:
    """fsck finds what the column hides."""
    if not planted:
        nothing = opened(queue, "x@y.z").json()  # a person without data
        assert [one["ref"] for one in found(queue, state="answered")] == [nothing["ref"]]
    queue.check()
    write(queue, f"UPDATE cases SET answered = {planted}")
    assert found(queue, state="answered") == []
    report = fsck(queue.services.ledger)
    assert [one.check for one in report.findings] == ["case"]
    assert report.findings[0].log_index is not None


def test_the_answered_are_read_by_an_index_in_their_order(queue: Installation) -> None:
    """With 100,000 open cases, checking each for an answer took 0.3 s of CPU time."""
    with Session(queue.services.engine) as session:
        like = session.exec(select(ErasureRequest)).first()
        assert like is not None
        cases, requests = [], []
        for number in range(2000):
            ref, due = str(uuid.uuid4()), utcnow() + timedelta(minutes=number)
            fields = {"ref": ref, "opened_by": "somebody", "regulation": "gdpr", "parts": []}
            cases.append(fields | {"received_at": utcnow(), "due_at": due})
            fields = like.model_dump() | {"id": str(uuid.uuid4()), "ref": str(uuid.uuid4())}
            state = "verifying" if number % 9 else "certified"
            requests.append(fields | {"case_ref": ref, "state": state, "due_at": due})
        session.connection().execute(insert(Case), cases)
        session.connection().execute(insert(ErasureRequest), requests)
        session.commit()
        session.connection().execute(text("ANALYZE"))
        session.commit()
    # For so few rows it would read and sort.
    ways = ("seqscan", "sort", "bitmapscan")
    off = [f"SET LOCAL enable_{way} = off" for way in ways]
    if queue.services.engine.dialect.name == "sqlite":
        off = []
    wanted = QueueQuery(state="answered", limit=50)
    plan = planned(queue, wanted, "cases.answered IS", *off)
    assert "ix_cases_answered" in plan, plan
    assert "TEMP B-TREE" not in plan, plan
    assert "Sort" not in plan, plan
    page = case_queue.search(queue.services, wanted)
    assert len(page.items) == 50
    assert page.next is not None


def stored_as_answered(queue: Installation) -> dict[str, bool]:
    """Return the column's value for each case."""
    with Session(queue.services.engine) as session:
        return {one.ref: one.answered for one in session.exec(select(Case))}


def test_officers_are_reminded_once_of_each_threshold(
    queue: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    owed: list[str] = []

    def remind() -> int:
        return reminders.remind(queue.services, lambda _, row: owed.append(row.ref))

    assert remind() == 0
    ref = found(queue)[0]["ref"]
    for left in (timedelta(days=9), timedelta(days=2), timedelta(hours=-1)):
        move(queue, ref, due_at=utcnow() + left)
        assert [remind(), remind()] == [1, 0]
    said = [message.partition(",")[0] for message in caplog.messages]
    assert said == [
        f"request {ref} {when}"
        for when in ("is due within 9 days", "is due within 2 days", "is overdue")
    ]
    assert owed == [ref]
    move(queue, ref, reminded=None)
    assert remind() == 1
    move(queue, ref, reminded=None, state="paused", paused_at=utcnow())
    assert remind() == 0


@pytest.fixture
def shell(queue: Installation, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """`lethe case` against the installation."""
    monkeypatch.setattr("lethe.cli.saved.client", lambda url: queue.client())
    return CliRunner()


def test_a_status_is_found_by_the_reference(
    queue: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = next(one["ref"] for one in found(queue) if one["case"] is None)
    monkeypatch.setattr(
        "lethe.cli.request.Client", lambda url, **options: queue.client(**options)
    )
    run = ["status", ref, "--url", "http://x"]
    # The reference is visible to everybody in the log.
    assert CliRunner().invoke(request, run).exit_code != 0
    shown = CliRunner().invoke(request, run, env={"LETHE_TOKEN": queue.caller.token})
    assert shown.exit_code == 0, shown.output
    assert "awaiting-review" in shown.output


def test_it_is_exported_as_csv_and_json(queue: Installation, shell: CliRunner) -> None:
    formula = replace(queue.caller, keyid="@sum")
    assert formula.register_key().status_code == 201
    assert formula.erase_records("r4").status_code == 202
    run = ["list", "--url", "http://x"]
    listed = json.loads(shell.invoke(command, [*run, "--json"]).output)
    assert [one["ref"] for one in listed] == [one["ref"] for one in found(queue)]
    rows = list(csv.DictReader(io.StringIO(shell.invoke(command, [*run, "--csv"]).output)))
    assert [row["ref"] for row in rows] == [one["ref"] for one in listed]
    assert "'@sum" in {row["requester"] for row in rows}  # a spreadsheet must not evaluate it
    table = shell.invoke(command, [*run, "--person", f"email={ANN}", "--limit", "1"]).output
    assert table.splitlines()[1].split()[1] == "awaiting-review"
    assert "awaiting-review" in shell.invoke(command, [*run, "--due-within", "40"]).output
    refused = shell.invoke(command, ["refuse", "x", "--url", "http://x", "--reason", "whim"])
    assert refused.exit_code == 2
    assert "legal-claims" in refused.output


def test_an_extended_deadline_holds_once_all_parts_have_ended(queue: Installation) -> None:
    """In the case, in the list and in the signed answer, which shows no internal acts."""
    (own,) = (one for one in found(queue) if one["case"] is not None)
    ref, operator = own["case"], queue.caller.operator
    body = {"reason": "complexity"}
    assert operator("POST", f"/v1/cases/{ref}/extend", json=body).status_code == 200
    due = operator("GET", f"/v1/cases/{ref}").json()["due_at"]
    assert due > own["due_at"]
    note = {"text": "asked for a copy first"}
    assert operator("POST", f"/v1/cases/{ref}/note", json=note).status_code == 200
    officer = replace(queue.caller, token=make_token(queue.services))
    assert officer.operator("POST", f"/v1/cases/{ref}/approve").status_code == 200
    queue.drain()
    shown = operator("GET", f"/v1/cases/{ref}").json()
    assert (shown["state"], shown["due_at"], shown["overdue"]) == ("answered", due, False)
    assert [one["due_at"] for one in found(queue, state="answered")] == [due]
    answer = operator("GET", f"/v1/cases/{ref}/summary")
    assert answer.status_code == 200, answer.text
    signed = json.loads(base64.b64decode(answer.json()["payload"]))["predicate"]
    assert signed["dueAt"] == due
    decisions = [one["decision"] for part in signed["parts"] for one in part["decisions"]]
    assert decisions == ["extended", "approved"]
