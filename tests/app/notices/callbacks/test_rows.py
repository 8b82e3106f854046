"""Addresses: not exchanged by whoever writes the database, destroyed when all is told."""

import logging
from typing import Any

import pytest
from sqlalchemy import inspect, text

from app.notices import deliver
from app.purge import retention
from app.reconcile.fsck.run import fsck
from tests.app.api.test_requests import problem
from tests.app.notices.callbacks.conftest import ask, call_back, callbacks, erase, sent
from tests.app.notices.conftest import pass_time, rows
from tests.app.notices.receiver import Receiver, receiving
from tests.installation import Installation, make_token
from tests.small import Caller
from tests.workers.jobs.desk.test_review import other


def execute(installation: Installation, statement: str) -> None:
    with installation.services.engine.begin() as connection:
        connection.execute(text(statement))


def test_an_exchanged_address_is_never_called(ready: Installation, receiver: Receiver) -> None:
    """An attacker with a request of their own puts its sealed address into another's row."""
    with receiving() as attacker:
        erase(ready, attacker, "r1")
        erase(ready, receiver, "r2")
        first, second = (one["id"] for one in callbacks(ready))
        swap = "UPDATE callbacks SET url = (SELECT url FROM callbacks o WHERE o.id = '{}') "
        execute(ready, swap.format(first) + f"WHERE id = '{second}'")
        assert [one["id"] for one in callbacks(ready)] == [first]
        report = fsck(ready.services.ledger)
        assert [one.check for one in report.findings] == ["callback"]
        ready.drain()
        call_back(ready)
        assert len(attacker.seen) == 1  # of its own request
        assert receiver.seen == []
    assert {row.answer for row in rows(ready) if row.receiver == second} == {"callback over"}


def test_a_row_of_another_request_or_owner_is_not_believed(
    ready: Installation, receiver: Receiver
) -> None:
    """The address that is told of one request is not told of another."""
    changes = ("request = '{0}'", "ref = '{0}'", "kind = 'OpenDSR'", "owner = 'eve'")
    with receiving() as attacker:
        for number, change in enumerate(changes):
            mine = erase(ready, attacker, f"r{number}")["ref"]
            other = ready.caller.erase_records(f"r{number + 10}").json()["ref"]
            execute(
                ready, f"UPDATE callbacks SET {change.format(other)} WHERE request = '{mine}'"
            )
        ready.drain()
        call_back(ready)
        # The second row's request is still its own: the entry of another is not told.
        assert attacker.seen == []
    assert {row.answer for row in rows(ready)} == {"callback over", "not as logged"}


def test_a_delivery_to_another_callback_is_not_authentic(
    ready: Installation, receiver: Receiver
) -> None:
    with receiving() as attacker:
        erase(ready, attacker, "r1")
        erase(ready, receiver, "r2")
        first, second = (one["id"] for one in callbacks(ready))
        ready.drain()
        receiver.answer(500)
        call_back(ready)
        attacker.seen.clear()
        execute(
            ready,
            f"UPDATE deliveries SET receiver = '{first}', state = 'waiting' "
            f"WHERE receiver = '{second}'",
        )
        pass_time(ready, days=1)
        call_back(ready)
        assert attacker.seen == []
    assert "not written here" in {row.answer for row in rows(ready)}


def test_an_address_is_kept_while_its_last_delivery_waits_and_no_longer(
    ready: Installation, receiver: Receiver
) -> None:
    erase(ready, receiver, "r5")
    ready.drain()
    for _ in range(len(deliver.SCHEDULE) + 1):
        receiver.answer(500)
        assert len(callbacks(ready)) == 1
        call_back(ready)
        pass_time(ready, days=1)
    assert len(receiver.seen) == 10
    assert callbacks(ready) == []
    with ready.services.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM callbacks")).scalar_one() == 0


def test_gone_asks_for_nothing_more(installation: Installation, receiver: Receiver) -> None:
    installation.ready(decide="review")
    call_back(installation)
    made = erase(installation, receiver, "r5")
    receiver.answer(410)
    path = f"/v1/cases/{made['ref']}"
    other(installation).operator("POST", f"{path}/approve")
    call_back(installation)
    assert len(receiver.seen) == 1
    assert callbacks(installation) == []
    installation.drain()
    call_back(installation)
    assert len(receiver.seen) == 1


def test_a_lane_that_is_taken_away_changes_only_who_sends(
    ready: Installation, receiver: Receiver
) -> None:
    erase(ready, receiver, "r5")
    ready.drain()
    receiver.answer(500)
    call_back(ready)
    execute(ready, "UPDATE deliveries SET lane = NULL")
    pass_time(ready, days=1)
    receiver.answer(410)
    call_back(ready)
    assert len(receiver.seen) == 2
    assert callbacks(ready) == []


def test_operators_list_replay_and_remove_and_nobody_else(
    installation: Installation, receiver: Receiver
) -> None:
    installation.ready(decide="review")
    call_back(installation)
    made = erase(installation, receiver, "r5")
    ask(installation, receiver.url, "r6")
    [mine] = callbacks(installation, ref=made["ref"])
    path = f"/v1/callbacks/{mine['id']}"
    operator = installation.caller.operator
    receiver.answer(500)
    other(installation).operator("POST", f"/v1/cases/{made['ref']}/approve")
    call_back(installation)
    [one] = sent(installation, mine["id"])
    assert (one["event"], one["state"], one["attempts"]) == ("request.state", "waiting", 1)
    problem(operator("POST", f"{path}/replay", json={"delivery": one["id"]}), 409, "conflict")
    execute(installation, "UPDATE deliveries SET state = 'failed'")
    assert operator("POST", f"{path}/replay", json={}).json() == {"waiting": 1}
    call_back(installation)
    assert len(receiver.seen) == 2
    page = operator("GET", "/v1/callbacks?limit=1").json()
    rest = operator("GET", f"/v1/callbacks?limit=1&after={page['next']}").json()
    assert {one["id"] for one in [*page["items"], *rest["items"]]} == {
        one["id"] for one in callbacks(installation)
    }
    auditor = Caller(installation.caller.http, make_token(installation.services, "auditor"))
    for method, where in (("GET", ""), ("GET", "/deliveries"), ("DELETE", "")):
        url = "/v1/callbacks" if (method, where) == ("GET", "") else path + where
        assert auditor.operator(method, url).status_code == 403
    assert operator("DELETE", path).json()["id"] == mine["id"]
    problem(operator("DELETE", path), 404, "not-found")
    installation.drain()
    call_back(installation)
    assert len(receiver.seen) == 2


def test_the_end_of_retention_takes_what_is_left(
    ready: Installation, receiver: Receiver
) -> None:
    erase(ready, receiver, "r5")
    ready.drain()
    object.__setattr__(ready.services.settings, "request_retention_days", 0)
    assert retention.run(ready.services).removed == {"evidence": 1, "scope": 1}
    assert callbacks(ready) == []
    call_back(ready)
    assert receiver.seen == []


def test_the_address_is_in_no_log_entry_metric_task_problem_or_clear_row(
    ready: Installation, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = "geheim-4711"
    with caplog.at_level(logging.DEBUG, logger="app"):
        answers = [ask(ready, f"{receiver.url}&{hidden}", "r5")]
        assert answers[0].status_code == 202
        answers.append(ask(ready, f"https://10.1.2.3/{hidden}", "r6"))
        answers.append(ask(ready, f"ftp://{hidden}/", "r6"))
        answers.append(ask(ready, [hidden], "r6"))
        assert [one.status_code for one in answers[1:]] == [422] * 3
        tasks = [*ready.dispatcher.nudges]
        stored = database(ready)
        receiver.answer(302, location=f"https://{hidden}.example/")
        ready.drain()
        tasks += ready.dispatcher.nudges
        call_back(ready)
        receiver.answer(500)
        pass_time(ready, days=1)
        call_back(ready)
        stored += database(ready)
        pass_time(ready, days=1)
        call_back(ready)
        stored += database(ready)
    assert len(receiver.seen) == 3
    accepted = answers[0].json()
    shown = [
        *(one.text for one in answers),
        ready.caller.http.get(f"/v1/requests/{accepted['id']}").text,
        ready.caller.operator("GET", "/v1/requests").text,
        ready.caller.operator("GET", "/metrics").text,
        *(body.decode() for _, body in receiver.seen),
        caplog.text,
        repr(tasks),
        stored,
    ]
    for place in shown:
        assert place
        assert hidden not in place
        assert "/hook" not in place
    ready.check()


def database(installation: Installation) -> str:
    """Return all rows as they are stored."""
    engine, found = installation.services.engine, list[Any]()
    with engine.connect() as connection:
        for table in inspect(engine).get_table_names():
            for row in connection.execute(text(f"SELECT * FROM {table}")):
                found += [
                    bytes(one).decode("latin-1") if isinstance(one, bytes | memoryview) else one
                    for one in row
                ]
    return repr(found)
