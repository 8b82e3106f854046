"""Tasks keep drivers' messages out of the log, and a job's quick stages need one message."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, update
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.service.context import Services
from app.settings import Settings
from models import Job, Verification
from models.database.types import utcnow
from tests.installation import Installation, install
from workers import celery_app
from workers.jobs import sweep


def test_an_error_is_named_and_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    def explode() -> None:
        raise RuntimeError("jane.doe@example.org")

    celery_app.quietly(explode)
    assert "RuntimeError" in caplog.text
    assert "jane.doe" not in caplog.text


def submit(installation: Installation, *records: str) -> list[str]:
    """Submit a request for each record; return the ids of their jobs."""
    for record in records:
        assert installation.caller.erase_records(record).status_code == 202
    installation.dispatcher.nudges.clear()
    with Session(installation.services.engine) as session:
        return list(
            session.exec(select(Job.id).where(Job.kind == "erase").order_by(col(Job.seq)))
        )


def stages(installation: Installation) -> list[str]:
    with Session(installation.services.engine) as session:
        return list(
            session.exec(select(Job.stage).where(Job.kind == "erase").order_by(col(Job.seq)))
        )


@pytest.fixture
def one_at_a_time(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """Settings under which each request is executed alone."""
    with install(settings.model_copy(update={"coalesce": False})) as made:
        made.ready()
        yield made


def test_sweeps_that_waited_in_the_queue_are_one(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While every worker trains, the schedule sends one every few seconds."""
    swept: list[Services] = []
    monkeypatch.setattr(sweep, "run", swept.append)
    settings = one_at_a_time.settings.model_copy(update={"sweep_seconds": 3600})
    hourly, sweeps = replace(one_at_a_time.services, settings=settings), celery_app.Sweeps()
    for _ in range(3):
        sweeps.run(hourly)
    assert swept == [hourly]


def test_quick_stages_of_a_job_follow_each_other_without_a_message(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_app, "SOON_S", 3600)
    first, second = submit(one_at_a_time, "r1", "r2")
    celery_app.run_stages(one_at_a_time.services, first, "execute")
    assert stages(one_at_a_time) == ["done", "execute"]
    # The next job is sent through the broker, behind those of other models.
    assert set(one_at_a_time.dispatcher.nudges) == {(second, "execute")}
    assert one_at_a_time.dispatcher.last == {second}


def test_the_stage_after_a_long_one_waits_for_its_turn(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_app, "SOON_S", 0)
    (job_id,) = submit(one_at_a_time, "r1")
    celery_app.run_stages(one_at_a_time.services, job_id, "execute")
    assert stages(one_at_a_time) == ["verify"]
    assert list(one_at_a_time.dispatcher.nudges) == [(job_id, "verify")]
    assert not one_at_a_time.dispatcher.last  # executed requests do not wait for new ones


def test_a_worker_keeps_its_lease_from_stage_to_stage(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_app, "SOON_S", 3600)
    held: list[tuple[str, int, int, int, bool]] = []

    def look(step: str) -> None:
        if not step.endswith(".leased"):
            return
        with Session(one_at_a_time.services.engine) as session:
            row = session.exec(select(Job).where(Job.id == job_id)).one()
            is_held = row.lease_until is not None and row.lease_until > utcnow()
            held.append((step, row.lease_token, row.tries, row.deaths, is_held))

    (job_id,) = submit(one_at_a_time, "r1")
    monkeypatch.setattr("workers.jobs.leased.reached", look)
    celery_app.run_stages(one_at_a_time.services, job_id, "execute")
    assert held == [
        (f"{stage}.leased", 1, 1, 1, True) for stage in ("execute", "verify", "certify")
    ]
    assert stages(one_at_a_time) == ["done"]
    one_at_a_time.check()


def test_a_lone_erasure_takes_11_commits_and_at_most_140_statements(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of docs/benchmarks/service.md; starting a transaction is not counted."""
    monkeypatch.setattr(celery_app, "SOON_S", 3600)
    engine, counts = one_at_a_time.services.engine, Counter[str]()

    def note(*arguments: Any) -> None:
        counts["statements"] += not arguments[2].startswith(("PRAGMA", "BEGIN"))

    def commit(_: object) -> None:
        counts["commits"] += 1

    submit(one_at_a_time, "r1")
    one_at_a_time.recover()  # once per process
    (*_, job_id) = submit(one_at_a_time, "r2")
    event.listen(engine, "before_cursor_execute", note)
    event.listen(engine, "commit", commit)
    celery_app.run_stages(one_at_a_time.services, job_id, "execute")
    event.remove(engine, "before_cursor_execute", note)
    event.remove(engine, "commit", commit)
    assert stages(one_at_a_time) == ["done", "done"]
    assert counts["commits"] <= 11
    assert 0 < counts["statements"] <= 140


def test_a_worker_that_lost_its_kept_lease_commits_nothing(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_app, "SOON_S", 3600)
    (job_id,) = submit(one_at_a_time, "r1")
    engine = one_at_a_time.services.engine

    def lose(step: str) -> None:
        if step == "verify.leased":  # another worker has it now
            with engine.begin() as connection:
                connection.execute(update(Job).values(lease_token=Job.lease_token + 1))

    monkeypatch.setattr("workers.jobs.leased.reached", lose)
    celery_app.run_stages(one_at_a_time.services, job_id, "execute")
    assert stages(one_at_a_time) == ["verify"]
    with Session(engine) as session:
        assert not session.exec(select(Verification)).all()


def test_a_stage_that_fails_under_a_kept_lease_is_tried_again(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_app, "SOON_S", 3600)
    (job_id,) = submit(one_at_a_time, "r1")

    def fail(step: str) -> None:
        if step == "verify.judged":
            raise OSError

    monkeypatch.setattr("workers.jobs.verify.reached", fail)
    celery_app.run_stages(one_at_a_time.services, job_id, "execute")
    with Session(one_at_a_time.services.engine) as session:
        row = session.exec(select(Job).where(Job.id == job_id)).one()
        assert (row.stage, row.tries, row.deaths) == ("verify", 1, 0)
        assert row.lease_until is not None  # it cools down
    monkeypatch.setattr("workers.jobs.verify.reached", lambda step: None)
    one_at_a_time.recover()
    assert stages(one_at_a_time) == ["done"]


def test_a_stage_that_is_committed_and_then_fails_gives_the_job_back(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_app, "SOON_S", 3600)
    (job_id,) = submit(one_at_a_time, "r1")

    def fail(step: str) -> None:
        if step == "execute.applied":
            raise OSError

    monkeypatch.setattr("workers.jobs.execute.reached", fail)
    celery_app.run_stages(one_at_a_time.services, job_id, "execute")
    with Session(one_at_a_time.services.engine) as session:
        row = session.exec(select(Job).where(Job.id == job_id)).one()
        assert (row.stage, row.deaths, row.lease_until) == ("verify", 0, None)
    assert (job_id, "verify") in one_at_a_time.dispatcher.nudges
