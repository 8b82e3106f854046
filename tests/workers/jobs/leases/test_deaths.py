"""A job that kills a worker each time ends: a dead worker reports nothing."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import Session, col, select

from app import steps
from app.purge import retention
from app.steps import PlantedFaultError
from models import Contribution, ErasureRequest, Job, Model
from models.database.types import clock, utcnow
from tests.installation import Installation, predicate, shown
from tests.small import MODEL, Caller, pack, rows
from tests.workers.jobs.attempts.test_decisions import decide, history
from tests.workers.jobs.method_audits import audits
from tests.workers.secure_sum.client.federation import Masked
from workers.families.network import attempt as network_attempt
from workers.families.network import audited
from workers.families.network.reference_models import TrainingClock
from workers.jobs.leased import leased
from workers.leases.lease import JobContext
from workers.method_audits import run as audit

NEEDS = "request.needs-decision"


@pytest.fixture(autouse=True)
def _harmless() -> Iterator[None]:
    yield
    steps.install(None)


def deadly(at: Installation, *stages: str, spared: int = 0) -> list[str]:
    """Kill every worker that takes a job at one of the stages; return the stages.

    spared: the number of tries that succeed before.
    """
    died: list[str] = []
    left = spared

    def die(step: str) -> None:
        nonlocal left
        if step in [f"{stage}.leased" for stage in stages]:
            left -= 1
            if left < 0:
                died.append(step)
                raise PlantedFaultError(step)

    steps.install(die)
    return died


def sweep(at: Installation, times: int) -> None:
    for _ in range(times):
        with suppress(PlantedFaultError):
            at.recover()


def job(at: Installation) -> Job:
    with Session(at.services.engine) as session:
        return session.exec(select(Job).order_by(col(Job.seq).desc())).first()  # type: ignore[return-value]


@pytest.mark.parametrize("stage", ["execute", "verify", "certify"])
def test_an_erasure_that_kills_its_worker_waits_for_a_decision(
    ready: Installation, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    most = ready.settings.max_tries
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    died = deadly(ready, stage)
    with suppress(PlantedFaultError):
        ready.drain()
    with caplog.at_level(logging.ERROR):
        sweep(ready, most + 4)
    assert died == [f"{stage}.leased"] * most
    told = shown(ready, request)
    assert told["state"] == "needs-decision"
    assert told["reason"] == f"its worker died {most} times at {stage}, of memory perhaps"
    assert history(ready, request).count(NEEDS) == 1
    assert caplog.text.count("waits for a decision") == 1
    steps.install(None)
    sweep(ready, 2)
    assert shown(ready, request)["state"] == "needs-decision", "it went on by itself"
    assert decide(ready, request, "retry") == 200
    ready.drain()
    assert shown(ready, request)["state"] == "certified"
    ready.check()


def test_given_up_it_makes_room_for_what_waits_behind_it(ready: Installation) -> None:
    first = str(ready.caller.erase_records("r1").json()["id"])
    died = deadly(ready, "execute")
    sweep(ready, ready.settings.max_tries + 1)
    behind = str(ready.caller.erase_records("r2").json()["id"])
    sweep(ready, 2)
    assert len(died) == ready.settings.max_tries
    assert shown(ready, behind)["state"] == "received"
    assert decide(ready, first, "abandon") == 200
    steps.install(None)
    sweep(ready, 1)
    assert (shown(ready, first)["state"], shown(ready, behind)["state"]) == (
        "failed",
        "certified",
    )
    ready.check()


def test_who_waits_behind_it_is_told_once_it_is_soon_due(ready: Installation) -> None:
    from tests.workers.jobs.leases.test_stalled import soon_due

    deadly(ready, "execute")
    ready.caller.erase_records("r1")
    sweep(ready, ready.settings.max_tries + 1)
    behind = str(ready.caller.erase_records("r2").json()["id"])
    soon_due(ready)
    sweep(ready, 2)
    assert shown(ready, behind)["reason"].startswith("waits for an earlier job of its model")
    assert history(ready, behind).count(NEEDS) == 1


def test_a_worker_that_fails_and_lives_does_not_count(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space left on device")

    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    with monkeypatch.context() as patch:
        patch.setattr(type(ready.services.artifacts), "put", full)
        sweep(ready, 2 * ready.settings.max_tries)
    assert job(ready).deaths == 0
    sweep(ready, 1)
    assert shown(ready, request)["state"] == "certified"


def test_learning_that_kills_its_worker_fails(ready: Installation) -> None:
    died = deadly(ready, "execute")
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    client.register_key(role="client")
    more = pack(rows(seed=5, count=2, first=300))
    path = f"/v1/models/{MODEL}/contributions"
    added = client.signed("POST", path, more, content_type="application/x-npz")
    assert added.is_success, added.text
    sweep(ready, ready.settings.max_tries + 2)
    assert len(died) == ready.settings.max_tries
    with Session(ready.services.engine) as session:
        row = session.exec(select(Contribution).order_by(col(Contribution.received_at).desc()))
        contribution = row.first()
    assert contribution is not None
    assert contribution.state == "failed"
    assert "its worker died" in str(contribution.failure)
    steps.install(None)
    request = str(ready.caller.erase_records("r1").json()["id"])
    sweep(ready, 1)
    assert shown(ready, request)["state"] == "certified"
    ready.check()


def test_a_round_that_kills_its_worker_fails(
    installation: Installation, enrolled: Masked
) -> None:
    masked = enrolled.at(installation)
    opened = masked.open("c0", "c1", "c2", "c3")
    round_id = opened.json()["id"]
    died = deadly(installation, "execute")
    masked.take([masked.joining(round_id, client) for client in ("c0", "c1", "c2", "c3")])
    sweep(installation, installation.settings.max_tries + 2)
    assert len(died) == installation.settings.max_tries
    ended = masked.view(round_id)
    assert ended["state"] == "failed"
    assert "its worker died" in ended["reason"]
    installation.check()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_audit_that_kills_its_workers_fails(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = installation
    audits.register(ready)
    most = ready.settings.max_tries
    audit_id = audits.start(ready, method="retrain")
    died: list[int] = []

    def die(*_: object) -> None:
        died.append(1)
        raise PlantedFaultError("audit")

    monkeypatch.setattr(audited, "run_pair", die)
    for _ in range(most + 2):
        with suppress(PlantedFaultError):
            audit.run(ready.services, audit_id)
        audits.age(ready, audit_id, timedelta(hours=1))
    assert len(died) == most
    shown = audits.get(ready, audit_id)
    assert (shown["state"], shown["failure"]) == (
        "failed",
        f"a pair ended its worker {most} times",
    )


def set_ahead(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Set this process's clock ahead of the database's."""
    real = datetime.now(UTC)

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + by

    monkeypatch.setattr("models.database.types.datetime", Ahead)
    assert utcnow() >= real + by


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_lease_ends_by_the_databases_clock(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock was six hours ahead held a model for six hours after its death."""
    real = utcnow()
    ready.caller.erase_records("r1")
    set_ahead(monkeypatch, timedelta(hours=6))
    with leased(ready.services, job(ready).id, "execute") as lease:
        assert lease is not None
        held = job(ready).lease_until
    assert held is not None
    with Session(ready.services.engine) as session:
        assert abs(clock(session) - real) < timedelta(hours=1)
    assert held < real + timedelta(hours=1)
    # What it looks at has not expired for it either.
    with leased(ready.services, job(ready).id, "execute") as other:
        assert other is None


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_retention_ends_by_the_databases_clock(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is years ahead would destroy data that must be kept."""
    ready.caller.erase_records("r1")
    ready.drain()
    set_ahead(monkeypatch, timedelta(days=36500))
    assert not retention.run(ready.services).removed
    days = ready.services.settings.model_copy(update={"request_retention_days": 0})
    ended = retention.run(replace(ready.services, settings=days)).removed
    assert ended == {"evidence": 1, "scope": 1}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_what_is_late_is_so_by_the_databases_clock(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is ahead gave up every approximation, and every claim about it."""
    ready.caller.erase_records("r1")
    set_ahead(monkeypatch, timedelta(days=36500))
    with leased(ready.services, job(ready).id, "execute") as lease:
        assert lease is not None
    # An error in a lease is recorded and not raised again: check when it is over.
    with ready.services.reading() as session:
        model = session.get_one(Model, lease.model_id)
    context = JobContext(ready.services, lease, model)
    assert network_attempt.why_not(context) is None
    TrainingClock(context).check(1)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_certificate_has_the_databases_time(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a slow worker, data was erased before anybody had asked for it."""
    request = ready.caller.erase_records("r1").json()["id"]
    set_ahead(monkeypatch, timedelta(hours=-1))
    ready.drain()
    with Session(ready.services.engine) as session:
        received = session.exec(select(ErasureRequest.received_at)).one()
    assert predicate(ready, request).completed_at >= received.replace(microsecond=0)
