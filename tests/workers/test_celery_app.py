"""Tasks keep what a driver quotes out of the log, and a job's quick stages need one message."""

from collections.abc import Iterator

import pytest
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Job
from tests.installation import Installation, install
from workers import celery_app


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
    assert not one_at_a_time.dispatcher.last  # what was executed does not wait for new ones


def test_an_error_that_escapes_a_stage_keeps_no_nudge(
    one_at_a_time: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_id,) = submit(one_at_a_time, "r1")

    def dies(services: object, job: str) -> None:
        services.dispatcher.nudge(job, "verify")  # type: ignore[attr-defined]
        raise RuntimeError

    monkeypatch.setattr(celery_app, "STAGES", {**celery_app.STAGES, "execute": dies})
    with pytest.raises(RuntimeError):
        celery_app.run_stages(one_at_a_time.services, job_id, "execute")
    assert list(one_at_a_time.dispatcher.nudges) == [(job_id, "verify")]
