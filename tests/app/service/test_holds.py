"""Legal holds: kept by the log's word, released by a second person, and no bar to an erasure."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app.problems import ConflictError
from app.purge import retention
from app.reconcile.fsck.run import fsck
from app.reconcile.holds import HoldsChangedError
from app.schemas.people import NewHold
from app.service import holds
from models import ErasureRequest, LegalHold, LogEntry
from tests.installation import Installation, make_token
from tests.small import MODEL, Caller
from tests.workers.jobs.desk.test_people import write

REASON = "Smith v. Example, discovery of Monday"
BOTH = {"evidence": 1, "scope": 1}
FORBIDDEN = "urn:lethe:problem:scope-insufficient"


def late(at: Installation) -> Any:
    """Services by whose settings the retention of all requests is over."""
    days = at.settings.model_copy(update={"request_retention_days": 0})
    return replace(at.services, settings=days)


def officer(at: Installation) -> Caller:
    return Caller(at.caller.http, make_token(at.services, "officer"))


def place(at: Installation, ref: str, by: Caller | None = None) -> Any:
    body = {"ref": ref, "reason": REASON}
    return (by or at.caller).operator("POST", "/v1/holds", json=body)


def held(at: Installation, ref: str) -> str:
    answer = place(at, ref)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def release(hold: str, by: Caller) -> Any:
    return by.operator("POST", f"/v1/holds/{hold}/release")


@pytest.fixture
def ref(ready: Installation) -> str:
    """The reference of a certified request."""
    ready.caller.erase_records("r1", "r2")
    ready.drain()
    with Session(ready.services.engine) as session:
        request = session.exec(select(ErasureRequest)).one()
        assert request.state == "certified"
        return request.ref


@pytest.mark.parametrize("of", ["request", "model"])
def test_what_is_held_outlives_its_retention(ready: Installation, ref: str, of: str) -> None:
    hold = held(ready, ref if of == "request" else MODEL)
    assert ready.caller.operator("GET", "/v1/holds").json()["items"][0]["of"] == of
    planned = retention.plan(late(ready))
    assert (planned.removed, planned.held) == ({}, BOTH)
    done = retention.run(late(ready))
    assert (done.removed, done.held, done.log_index) == ({}, BOTH, None)
    assert release(hold, officer(ready)).status_code == 200
    assert ready.caller.operator("GET", "/v1/holds").json()["items"] == []
    done = retention.run(late(ready))
    assert (done.removed, done.held) == (BOTH | {"hold": 1}, {})
    ready.check()


def test_another_request_ends_beside_a_held_one(ready: Installation, ref: str) -> None:
    held(ready, ref)
    ready.caller.erase_records("r3")
    ready.drain()
    done = retention.run(late(ready))
    assert (done.removed, done.held) == (BOTH, BOTH)
    with Session(ready.services.engine) as session:
        kept = session.exec(select(ErasureRequest).where(ErasureRequest.ref == ref)).one()
        assert kept.scope["records"] == ["r1", "r2"]


def test_nobody_releases_what_they_placed(ready: Installation, ref: str) -> None:
    hold = held(ready, ref)
    refused = release(hold, ready.caller)
    assert (refused.status_code, refused.json()["type"]) == (403, FORBIDDEN)
    second = officer(ready)
    shown = release(hold, second).json()
    assert shown["released_by"] != shown["placed_by"]
    assert release(hold, second).status_code == 409
    assert release("unknown", second).status_code == 404
    ready.check()


def test_whoever_writes_the_name_of_another_into_the_table_releases_nothing(
    ready: Installation, ref: str
) -> None:
    hold = held(ready, ref)
    write(ready, "UPDATE legal_holds SET placed_by = 'somebody else'")
    refused = release(hold, ready.caller)
    assert refused.json()["type"] == "urn:lethe:problem:holds-changed"


def test_what_is_not_there_is_not_held(ready: Installation, ref: str) -> None:
    assert place(ready, "nobody-4711").status_code == 404
    retention.run(late(ready))
    assert place(ready, ref).status_code == 409
    auditor = Caller(ready.caller.http, make_token(ready.services, "auditor"))
    assert place(ready, ref, auditor).status_code == 403


def test_a_hold_between_the_plan_and_the_run_is_kept(ready: Installation, ref: str) -> None:
    assert retention.plan(late(ready)).removed == BOTH
    held(ready, ref)
    assert not retention.run(late(ready)).removed


def test_no_hold_comes_between_selection_and_removal(
    ready: Installation, ref: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the run's transaction, and then says that there is nothing left to keep."""
    tries: list[Future[Any]] = []
    destroyed = retention.DESTROY["evidence"]
    wanted = NewHold(ref=ref, reason=REASON)
    with ThreadPoolExecutor(1) as pool:

        def meanwhile(*arguments: Any) -> str:
            tries.append(pool.submit(holds.place, ready.services, wanted, "operator"))
            return destroyed(*arguments)

        changed = {**retention.DESTROY, "evidence": meanwhile}
        monkeypatch.setattr(retention, "DESTROY", changed)
        assert retention.run(late(ready)).removed == BOTH
    assert isinstance(tries[0].exception(), ConflictError)
    with Session(ready.services.engine) as session:
        assert session.exec(select(LegalHold)).all() == []


def lost(at: Installation) -> None:
    write(at, "DELETE FROM legal_holds")


def retargeted(at: Installation) -> None:
    write(at, "UPDATE legal_holds SET target = 'elsewhere'")


def as_released(at: Installation) -> None:
    write(at, "UPDATE legal_holds SET released_at = placed_at, released_by = 'somebody'")


def added(at: Installation) -> None:
    write(
        at,
        "INSERT INTO legal_holds (id, kind, target, reason, key, placed_by, placed_at, "
        "log_index) SELECT 'planted', kind, target, reason, key, placed_by, placed_at, log_index "
        "FROM legal_holds",
    )


@pytest.mark.parametrize(
    ("plant", "stops"),
    [(lost, True), (retargeted, True), (as_released, False), (added, False)],
)
def test_nothing_is_destroyed_by_the_word_of_the_table(
    ready: Installation, ref: str, plant: Callable[[Installation], None], stops: bool
) -> None:
    held(ready, ref)
    assert fsck(ready.services.ledger).ok
    plant(ready)
    if stops:
        with pytest.raises(HoldsChangedError):
            retention.run(late(ready))
    else:
        assert not retention.run(late(ready)).removed
    with Session(ready.services.engine) as session:
        assert session.exec(select(ErasureRequest)).one().forgotten_at is None
    assert {one.check for one in fsck(ready.services.ledger).findings} == {"hold"}


@pytest.mark.parametrize("of", ["request", "model"])
def test_a_held_model_is_not_deleted(ready: Installation, ref: str, of: str) -> None:
    hold = held(ready, ref if of == "request" else MODEL)
    refused = ready.caller.operator("DELETE", f"/v1/models/{MODEL}")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:lethe:problem:held")
    assert release(hold, officer(ready)).status_code == 200
    assert ready.caller.operator("DELETE", f"/v1/models/{MODEL}").status_code == 200
    assert place(ready, MODEL).status_code == 409


def test_a_hold_stops_no_erasure(ready: Installation, ref: str) -> None:
    held(ready, MODEL)
    request = ready.caller.erase_records("r3").json()["id"]
    ready.drain()
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "certified"
    ready.check()


def test_the_log_says_nothing_of_what_is_held(ready: Installation, ref: str) -> None:
    held(ready, ref)
    with Session(ready.services.engine) as session:
        query = select(LogEntry.leaf).where(LogEntry.event == "hold.placed")
        leaf = session.exec(query).one()
        stored = session.connection().execute(text("SELECT * FROM legal_holds")).all()
    assert ref.encode() not in leaf
    assert REASON.encode() not in leaf
    assert REASON not in str(stored)


def test_queue_and_case_show_it(ready: Installation, ref: str) -> None:
    ready.caller.erase_records("r3")  # open, because nothing is drained
    with Session(ready.services.engine) as session:
        waiting = session.exec(
            select(ErasureRequest.ref).where(ErasureRequest.state == "received")
        ).one()

    def listed(**filters: Any) -> list[tuple[str, bool]]:
        found = ready.caller.operator("POST", "/v1/cases/search", json=filters).json()["items"]
        return [(one["ref"], one["held"]) for one in found]

    assert listed() == [(waiting, False)]
    assert listed(held=True) == []
    hold = held(ready, waiting)
    assert listed() == [(waiting, True)]
    assert listed(held=True) == [(waiting, True)]
    assert listed(held=False) == []
    shown = ready.caller.operator("GET", f"/v1/cases/{waiting}").json()
    assert [(one["id"], one["reason"]) for one in shown["holds"]] == [(hold, REASON)]
    other = ready.caller.operator("GET", f"/v1/cases/{ref}").json()
    assert other["holds"] == []
    assert release(hold, officer(ready)).status_code == 200
    assert listed() == [(waiting, False)]


def test_whom_a_held_requests_key_is_bound_to_is_kept(ready: Installation) -> None:
    person = Caller(ready.caller.http, ready.caller.token, keyid="hers")
    assert person.register_key(client="c1").status_code == 201
    request = person.erase({"level": "client", "client": "c1"})
    assert request.status_code == 202, request.text
    ready.drain()
    hold = held(ready, request.json()["ref"])
    assert ready.caller.operator("DELETE", "/v1/keys/hers").status_code == 200
    done = retention.run(ready.services)
    assert (done.removed, done.held) == ({}, {"key": 1})
    assert release(hold, officer(ready)).status_code == 200
    assert retention.run(ready.services).removed == {"key": 1}
