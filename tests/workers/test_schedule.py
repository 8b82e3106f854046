"""Sweep and end of retention are sent only by the leading process."""

from typing import Any

import pytest

from app.election import Election
from app.settings import Settings
from models.database.session import make_engine
from workers import schedule
from workers.celery_app import app


@pytest.fixture
def sent(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks sent by two schedules of this installation."""
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
    names: list[str] = []
    monkeypatch.setattr(
        schedule.ElectedScheduler,
        "apply_async",
        lambda own, entry, **_: names.append(entry.task),
    )
    return names


def make(leads: Any, monkeypatch: pytest.MonkeyPatch) -> schedule.ElectedScheduler:
    monkeypatch.setattr(schedule, "election", leads)
    made = schedule.ElectedScheduler(app=app)
    for entry in made.schedule.values():
        entry.last_run_at = entry.default_now().replace(year=2020)
    return made


def test_the_leader_alone_sends(
    settings: Settings, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule.election.cache_clear()
    first = schedule.election()
    engine = make_engine(settings.resolved_database_url)
    other = Election(engine)
    leading = make(lambda: first, monkeypatch)
    for _ in app.conf.beat_schedule:
        leading.tick()
    assert sorted(sent) == ["lethe.retention", "lethe.sweep"]
    waiting = make(lambda: other, monkeypatch)
    assert waiting.tick() == schedule.WAIT_S
    assert len(sent) == 2
    engine.dispose()


def test_a_schedule_outlives_its_database(
    sent: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away:
        def leads(self) -> bool:
            raise OSError("a text that may quote a row")

    assert make(Away, monkeypatch).tick() == schedule.WAIT_S
    assert sent == []
    assert "OSError" in caplog.text
    assert "quote" not in caplog.text
