"""Requests executed together, the first of which an operator gives up: none is lost."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Artifact, Job, Model
from tests.installation import Installation, install
from workers.cases.claims import purge_claims
from workers.families.ridge import case as ridge_case

RECORDS = ("r1", "r2", "r3")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: decisions do not depend on it."""
    return sqlite_url


@pytest.fixture
def spent(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Installation, list[str]]]:
    """Three requests of one update with data that stay readable until the patch is undone."""
    waiting = {"batch_min_requests": 3, "batch_max_wait_seconds": 3600}
    with install(settings.model_copy(update=waiting)) as made:
        made.ready()

        def readable(*arguments: Any) -> Any:
            return [
                replace(claim, probes=[replace(one, readable=True) for one in claim.probes])
                for claim in purge_claims(*arguments)
            ]

        monkeypatch.setattr(ridge_case, "purge_claims", readable)
        requests = [str(made.caller.erase_records(r).json()["id"]) for r in RECORDS]
        made.drain()
        assert states(made, requests) == ["needs-decision", "verifying", "verifying"]
        yield made, requests


def states(made: Installation, requests: list[str]) -> list[str]:
    found = [made.caller.http.get(f"/v1/requests/{request}").json() for request in requests]
    return [str(one["state"]) for one in found]


def decide(made: Installation, request: str, decision: str) -> None:
    path = f"/v1/requests/{request}/decision"
    answer = made.caller.operator("POST", path, json={"decision": decision, "why": "looked"})
    assert answer.status_code == 200, answer.text
    made.drain()


def test_the_next_one_waits_for_a_decision_in_its_place(
    spent: tuple[Installation, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, requests = spent
    decide(made, requests[0], "abandon")
    assert states(made, requests) == ["failed", "needs-decision", "verifying"]
    shown = made.caller.http.get(f"/v1/requests/{requests[1]}").json()
    assert "abandoned: verification FAIL also after a refit" in shown["reason"]
    assert shown["history"][-1]["event"] == "request.needs-decision"
    assert shown["attempt"]["ahead"] == ["decision"]
    monkeypatch.undo()  # the operator has removed the readable data
    decide(made, requests[1], "retry")
    assert states(made, requests) == ["failed", "certified", "certified"]
    with Session(made.services.engine) as session:
        assert session.exec(select(Model)).one().state == "ready"
    made.check()


def test_a_retry_of_the_first_goes_on_with_the_others(
    spent: tuple[Installation, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, requests = spent
    monkeypatch.undo()
    decide(made, requests[0], "retry")
    assert states(made, requests) == ["certified"] * 3


def test_each_can_be_given_up_and_nothing_of_them_is_left(
    spent: tuple[Installation, list[str]],
) -> None:
    made, requests = spent
    for request in requests:
        decide(made, request, "abandon")
    assert states(made, requests) == ["failed"] * 3
    with Session(made.services.engine) as session:
        jobs = session.exec(select(Job)).all()
        readable = {a.kind for a in session.exec(select(Artifact)) if a.wrapped_key is not None}
    assert all(job.done_at is not None for job in jobs)
    assert not readable & {"draft", "before"}
    made.check()
