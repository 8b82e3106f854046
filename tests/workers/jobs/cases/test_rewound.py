"""An attacker who can write job rows moves an executed request back to an earlier stage."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app import steps
from app.reconcile.judgement import Event, contradiction, logged_escalation
from models import Model
from tests.installation import Installation, state
from tests.workers.jobs.attempts.ladders import HF_KCU, policy
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.attempts.test_decisions import decide, history
from tests.workers.jobs.cases.tampered import job_of
from tests.workers.jobs.cases.test_dishonest_provider import rows_kept_in_storage
from tests.workers.jobs.families.network import networks
from workers.jobs.execute import EXECUTED

Patch = pytest.MonkeyPatch


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the log's content does not depend on it."""
    return sqlite_url


@contextmanager
def rewound(installation: Installation, at: str, change: str) -> Iterator[None]:
    """Change the jobs of erasures once, when a worker first reaches a step."""
    done: list[str] = []

    def write(step: str) -> None:
        if step == at and not done:
            done.append(step)
            with installation.services.engine.begin() as connection:
                connection.execute(text(f"UPDATE jobs SET {change} WHERE kind = 'erase'"))

    steps.install(write)
    try:
        yield
    finally:
        steps.install(None)
    assert done


def model(installation: Installation) -> Model:
    with Session(installation.services.engine) as session:
        return session.exec(select(Model)).one()


def test_a_refuted_request_is_not_executed_as_if_it_had_just_begun(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy(HF_KCU))
    plant(monkeypatch, "yeom:auc")
    request = networks.submit(installation, networks.whole("c1"))
    with rewound(installation, "verify.recorded", "step = 1"):
        installation.drain()
    assert (state(installation, request), model(installation).state) == (
        "needs-decision",
        "quarantined",
    )
    assert model(installation).failure == EXECUTED
    assert decide(installation, request, "retry") == 200
    installation.drain()
    assert state(installation, request) == "certified"
    assert networks.statement(installation, request).predicate.method.id == "retrain"
    installation.check()


def test_an_executed_request_is_not_refused_for_want_of_its_rows(ready: Installation) -> None:
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    back = "stage = 'execute', step = 1, lease_until = NULL"
    with rewound(ready, "execute.applied", back):
        ready.drain()
        ready.recover()
    assert (state(ready, request), model(ready).state) == ("needs-decision", "quarantined")
    assert "request.refused" not in history(ready, request)
    ready.check()


def test_what_was_refuted_is_not_judged_again(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy(HF_KCU))
    planted = plant(monkeypatch, "yeom:auc")
    request = networks.submit(installation, networks.some("r0", "r1"))
    with rewound(installation, "verify.recorded", "stage = 'verify', step = 1"):
        installation.drain()
    assert len(planted.seen) == 1
    assert (state(installation, request), model(installation).state) == (
        "needs-decision",
        "quarantined",
    )
    installation.check()


def test_two_judgements_of_one_execution_are_neither_certified_nor_forgotten() -> None:
    told = [
        ("request.executed", {"method": "puf-special"}),
        ("request.verified", {"result": "FAIL"}),
        ("request.escalated", {}),
        ("request.verified", {"result": "PASS", "evidence": "e", "class": "c"}),
    ]
    events = [Event(index, event, said) for index, (event, said) in enumerate(told)]
    assert contradiction(events, "e", "c") == (
        "the log has two judgements of one execution of this request"
    )
    assert logged_escalation(events).since[0].verdict == {"result": "FAIL"}
    again = [*events[:3], events[0], events[3]]
    assert contradiction(again, "e", "c") is None


@pytest.mark.parametrize("stage", ["execute", "certify"])
def test_giving_up_what_was_refuted_quarantines_whatever_the_job_says(
    ready: Installation, monkeypatch: Patch, stage: str
) -> None:
    with monkeypatch.context() as patch:
        rows_kept_in_storage(patch)
        request = str(ready.caller.erase_records("r1", "r6").json()["id"])
        ready.drain()
    with Session(ready.services.engine) as session:
        job = job_of(session, request)
        job.stage, job.step = stage, 1
        session.exec(select(Model)).one().state = "ready"
        session.commit()
    assert decide(ready, request, "abandon") == 200
    assert (state(ready, request), model(ready).state) == ("failed", "quarantined")
    ready.check()
