"""`lethe worker`: which queues it works on."""

from typing import Any

import pytest
from celery.beat import EmbeddedService
from click.testing import CliRunner

from app.settings import Settings
from workers import devices, runtime
from workers.cli.worker import worker


class Opened:
    """In place of services: the command needs their settings."""

    settings = Settings(silos=3)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What Celery was started with."""
    from workers.celery_app import app

    calls: list[list[str]] = []
    monkeypatch.setattr(runtime, "services", Opened)
    monkeypatch.setattr(devices, "choose", lambda device: None)
    monkeypatch.setattr(EmbeddedService(app, thread=True).__class__, "start", lambda _: None)
    monkeypatch.setattr(app, "worker_main", calls.append)
    return calls


QUEUES = {
    "": "cpu",
    "--silo 0": "silo-0",
    "--silo 2 --silo 1": "silo-1,silo-2",
    "--silo 1 --silo 1": "silo-1",
}


@pytest.mark.parametrize("options", QUEUES)
def test_a_worker_works_on_jobs_or_for_silos(started: list[list[str]], options: str) -> None:
    done = CliRunner().invoke(worker, options.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (arguments,) = started
    assert arguments[arguments.index("--queues") + 1] == QUEUES[options]


@pytest.mark.parametrize("silo", ["3", "-1", "0.5"])
def test_a_silo_that_nothing_is_sent_to_is_refused(started: Any, silo: str) -> None:
    done = CliRunner().invoke(worker, ["--silo", "0", "--silo", silo])
    assert done.exit_code == 2
    assert not started
    if silo == "3":
        assert "LETHE_SILOS is 3" in done.output
