"""Temporarily giving a request another's sealed scope gets nothing certified by it."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app import steps
from app.service.models.held_out import HeldOutRows
from models import Model, Record, Subject
from tests.installation import Installation, shown, state
from tests.small import rows
from tests.workers.jobs.attempts.test_decisions import decide, history
from tests.workers.jobs.lineage.test_held_out import HELD, evaluated, installation_file, stored
from workers.cases.case import ELSE
from workers.jobs import batch
from workers.leases.lease import JobContext
from workers.lineage.logged import OTHER_SCOPE

Patch = pytest.MonkeyPatch
SCOPE = text("SELECT scope FROM erasure_requests WHERE id = :request")
SET = text("UPDATE erasure_requests SET scope = :scope WHERE id = :request")
C1 = {"level": "client", "client": "c1"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the log's content does not depend on it."""
    return sqlite_url


class Writer:
    """An attacker who can write the table of requests, but has no key."""

    def __init__(self, at: Installation, request: str, other: str) -> None:
        self._engine, self._request = at.services.engine, request
        self.own, self.others = self._scope(request), self._scope(other)

    def _scope(self, request: str) -> object:
        with self._engine.connect() as connection:
            return connection.execute(SCOPE, {"request": request}).scalar_one()

    def swap(self) -> None:
        """Give the request the other's sealed scope."""
        self._set(self.others)

    def put_back(self) -> None:
        """Restore its own scope."""
        self._set(self.own)

    def _set(self, scope: object) -> None:
        with self._engine.begin() as connection:
            connection.execute(SET, {"scope": scope, "request": self._request})


def at_steps(at: Installation, does: dict[str, Callable[[], None]]) -> None:
    """Run the queue, and each action once when a worker first reaches its step."""
    left = dict(does)

    def reach(step: str) -> None:
        if (do := left.pop(step, None)) is not None:
            do()

    steps.install(reach)
    try:
        at.drain()
    finally:
        steps.install(None)
    assert not left


def asked(at: Installation) -> tuple[str, Writer]:
    """Return a request for all of c1, and a writer who can give it the scope of one for c3."""
    request = str(at.caller.erase(C1).json()["id"])
    other = str(at.caller.erase({"level": "client", "client": "c3"}).json()["id"])
    return request, Writer(at, request, other)


def left(at: Installation, client: str) -> int:
    with Session(at.services.engine) as session:
        query = select(Record.id).join(Subject).where(Subject.client_tag == client)
        return len(session.exec(query).all())


def quarantined(at: Installation, request: str, why: str) -> None:
    told = shown(at, request)
    assert (told["state"], told["certificate"]) == ("needs-decision", None)
    assert told["reason"] == why
    with Session(at.services.engine) as session:
        assert session.exec(select(Model)).one().state == "quarantined"


@pytest.mark.parametrize("when", ["execute.leased", None], ids=["at its turn", "before"])
def test_nothing_is_erased_by_the_scope_of_another(
    ready: Installation, when: str | None
) -> None:
    request, writer = asked(ready)
    if when is None:
        writer.swap()
        ready.drain()
    else:
        at_steps(ready, {when: writer.swap})
    quarantined(ready, request, OTHER_SCOPE)
    assert (left(ready, "c1"), left(ready, "c3")) == (8, 8)
    assert "request.executed" not in history(ready, request)
    writer.put_back()
    assert decide(ready, request, "retry") == 200
    ready.drain()
    assert state(ready, request) == "certified"
    assert (left(ready, "c1"), left(ready, "c3")) == (0, 0)
    ready.check()


def test_nothing_is_erased_by_another_method(ready: Installation) -> None:
    request = str(
        ready.caller.erase_records("r2", fields={"method": "ridge-exact"}).json()["id"]
    )
    change = text("UPDATE erasure_requests SET method = :method WHERE id = :request")

    def run_by(method: str) -> None:
        with ready.services.engine.begin() as connection:
            connection.execute(change, {"method": method, "request": request})

    run_by("ridge-woodbury")
    ready.drain()
    quarantined(ready, request, OTHER_SCOPE)
    run_by("ridge-exact")
    assert decide(ready, request, "retry") == 200
    ready.drain()
    assert state(ready, request) == "certified"
    ready.check()


def test_what_was_erased_by_another_scope_is_not_judged_by_it(
    ready: Installation, monkeypatch: Patch
) -> None:
    """Even if the execution used it: the received scope is judged."""
    request, writer = asked(ready)
    monkeypatch.setattr(batch, "changed_since_received", lambda *_: set())
    monkeypatch.setattr(batch, "waiting_run", lambda _, head: [head])
    at_steps(ready, {"execute.leased": writer.swap})
    writer.put_back()
    quarantined(ready, request, f"not verified: {ELSE}")
    assert left(ready, "c1") == 8
    assert "request.verified" not in history(ready, request)


def test_held_out_rows_leave_by_the_scope_that_was_received(
    installation: Installation, monkeypatch: Patch
) -> None:
    """The scope differs only while these are chosen: the judge never looks at them."""
    installation.ready(arrays=evaluated(rows()))
    collect = batch.collect
    request, writer = asked(installation)

    def late(job: JobContext) -> Any:
        members = collect(job)
        writer.swap()
        return members[:1]

    monkeypatch.setattr(batch, "collect", late)
    at_steps(installation, {"execute.applied": writer.put_back})
    quarantined(installation, request, OTHER_SCOPE)
    (kept,) = stored(installation)
    assert len(HeldOutRows.read(installation_file(installation, kept.id)).records) == HELD


@pytest.mark.full
def test_a_request_that_would_go_together_waits_for_its_own_turn(ready: Installation) -> None:
    first = str(ready.caller.erase_records("r2").json()["id"])
    request, writer = asked(ready)
    at_steps(ready, {"execute.leased": writer.swap})
    assert state(ready, first) == "certified"
    quarantined(ready, request, OTHER_SCOPE)
    assert left(ready, "c1") == 8
