"""Nudges through the brokers: whole, of an opaque id only, and never in the way."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.dispatch import Dispatcher, make_celery
from app.settings import Settings


@pytest.fixture
def settings(data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir)


def messages(settings: Settings) -> list[Path]:
    return sorted((settings.data_dir / "broker").glob("*.msg"))


def test_a_message_appears_whole(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    replace = os.replace

    def watch(source: Path, target: Path) -> None:
        assert not target.exists()
        seen.append(len(messages(settings)))
        json.loads(source.read_text())
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    Dispatcher(make_celery(settings)).nudge("job-1")
    assert seen[-1] == 0, "the message was visible before it was written"
    assert len(messages(settings)) == 1


def test_a_message_holds_the_job_and_nothing_else(settings: Settings) -> None:
    Dispatcher(make_celery(settings)).nudge("job-1", "verify")
    (message,) = messages(settings)
    content: dict[str, Any] = json.loads(message.read_text())
    assert content["headers"]["task"] == "lethe.verify"
    assert content["headers"]["argsrepr"] == "['job-1']"


def test_a_worker_reads_it(settings: Settings) -> None:
    celery = make_celery(settings)
    Dispatcher(celery).nudge("job-1")
    with celery.connection_for_read() as connection:
        queue = connection.SimpleQueue("cpu")
        message = queue.get(timeout=5)
        assert message.headers["task"] == "lethe.execute"
        message.ack()
        queue.close()


def test_a_broker_that_is_gone_costs_nothing(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Settings(data_dir=data_dir, broker_url="redis://127.0.0.1:1/0")
    dispatcher = Dispatcher(make_celery(gone))
    dispatcher.nudge("job-1")
    assert "the sweep will" in caplog.text
    with pytest.raises(Exception, match=r"refused|connect"):
        dispatcher.check()
