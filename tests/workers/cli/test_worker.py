"""`lethe worker`: which queues it works on."""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery.beat import EmbeddedService
from celery.signals import worker_init
from celery.worker import state
from click.testing import CliRunner

from app.notices.sender import Sender
from app.service.access import silo_keys
from app.settings import Settings
from workers import devices, runtime
from workers.cli.worker import worker
from workers.silos import keys


@dataclass(frozen=True)
class Ended:
    """Stands in for Celery's worker after it returned."""

    exitcode: int | None


@dataclass
class Opened:
    """Stands in for services: the command only needs their settings."""

    settings: Settings


@pytest.fixture
def three(data_dir: Path) -> Settings:
    """Settings of an installation with three silos."""
    (data_dir / "keys").mkdir()
    return Settings(data_dir=data_dir, silos=3)


@pytest.fixture
def chosen() -> list[str]:
    """The devices that were selected."""
    return []


@pytest.fixture
def senders() -> list[Sender]:
    """The senders of notices that were started."""
    return []


@pytest.fixture
def started(
    monkeypatch: pytest.MonkeyPatch,
    three: Settings,
    chosen: list[str],
    senders: list[Sender],
) -> list[list[str]]:
    """The arguments that Celery was started with."""
    from workers.celery_app import app

    calls: list[list[str]] = []
    # For the whole process, which continues with other tests.
    monkeypatch.setattr("workers.cli.worker.share_heaps", lambda: None)
    monkeypatch.setattr(Sender, "start", lambda sender: senders.append(sender))
    monkeypatch.setattr(runtime, "services", lambda: Opened(three))
    monkeypatch.setattr(
        silo_keys, "renew", lambda _, silos: calls.append(["keys", *map(str, silos)])
    )
    monkeypatch.setattr(devices, "choose", chosen.append)
    monkeypatch.setattr(EmbeddedService(app, thread=True).__class__, "start", lambda _: None)
    monkeypatch.setattr(app, "worker_main", calls.append)
    # This process continues with other tests.
    monkeypatch.setattr(runtime, "serve", lambda _: None)
    return calls


QUEUES = {
    "": "cpu",
    "--queue gpu": "gpu",
    "--queue gpu --queue cpu": "cpu,gpu",
    "--silo 0": "silo-0",
    "--silo 2 --silo 1": "silo-1,silo-2",
    "--silo 1 --silo 1": "silo-1",
}


@pytest.mark.parametrize("options", QUEUES)
def test_a_worker_works_on_jobs_or_for_silos(
    started: list[list[str]],
    senders: list[Sender],
    three: Settings,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "gpu" in options:
        routed = three.model_copy(update={"silos": 0, "gpu_queue": True})
        monkeypatch.setattr(runtime, "services", lambda: Opened(routed))
    done = CliRunner().invoke(worker, options.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    *keys_logged, arguments = started
    assert [one[0] for one in keys_logged] == (["keys"] if "silo" in options else [])
    assert arguments[arguments.index("--queues") + 1] == QUEUES[options]
    assert len(senders) == ("silo" not in options)  # a silo has no mail server and no webhooks


QUEUE_REFUSALS = {
    "--queue gpu": (False, 0, "LETHE_GPU_QUEUE is not set"),
    "--queue gpu --silo 0": (True, 3, "leave --queue out"),
}


@pytest.mark.parametrize("options", QUEUE_REFUSALS)
def test_a_queue_that_nothing_is_sent_to_is_refused(
    started: list[list[str]], three: Settings, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    routed, silos, cause = QUEUE_REFUSALS[options]
    other = three.model_copy(update={"silos": silos, "gpu_queue": routed})
    monkeypatch.setattr(runtime, "services", lambda: Opened(other))
    done = CliRunner().invoke(worker, options.split())
    assert (done.exit_code, started) == (2, [])
    assert cause in done.output


def test_a_worker_shares_heaps_before_it_does_anything_else(
    started: list[list[str]], three: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that has a heap of its own keeps it."""
    from app import logs

    done: list[str] = []

    def opened() -> Opened:
        done.append("services")
        return Opened(three)

    monkeypatch.setattr("workers.cli.worker.share_heaps", lambda: done.append("heaps"))
    monkeypatch.setattr(gc, "disable", lambda: done.append("collection"))
    monkeypatch.setattr(logs, "configure", lambda _: done.append("logs"))
    monkeypatch.setattr(runtime, "services", opened)
    result = CliRunner().invoke(worker, ["--silo", "0"], catch_exceptions=False)
    assert (result.exit_code, len(started)) == (0, 2)
    assert done == ["heaps", "collection", "logs", "services"]


def test_a_silo_has_its_key_registered_when_it_starts(
    started: list[list[str]], three: Settings
) -> None:
    for _ in range(2):
        assert CliRunner().invoke(worker, ["--silo", "1"]).exit_code == 0
    assert sorted(path.name for path in three.keys_dir.iterdir()) == [
        "silo-1.key",
        "silo-1.pem",
    ]
    assert keys.public_key(three, 1) is not None


def test_a_silo_with_another_key_than_the_registered_does_not_start(
    started: list[list[str]], three: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys.register(three, 1)
    elsewhere = three.model_copy(update={"silo_key_dir": str(tmp_path / "own")})
    monkeypatch.setattr(runtime, "services", lambda: Opened(elsewhere))
    done = CliRunner().invoke(worker, ["--silo", "1"])
    assert isinstance(done.exception, keys.SiloKeyError)
    assert "another key" in done.exception.detail
    assert not started


@pytest.mark.parametrize("silo", ["3", "-1", "0.5"])
def test_a_silo_that_nothing_is_sent_to_is_refused(started: Any, silo: str) -> None:
    done = CliRunner().invoke(worker, ["--silo", "0", "--silo", silo])
    assert done.exit_code == 2
    assert not started
    if silo == "3":
        assert "LETHE_SILOS is 3" in done.output


def test_a_silo_does_not_take_a_gpu_that_it_would_not_use(
    started: list[list[str]], chosen: list[str]
) -> None:
    done = CliRunner().invoke(worker, ["--silo", "0", "--device", "cuda"])
    assert done.exit_code == 2
    assert "silos compute on the processor: leave --device out" in done.output
    assert not started
    assert not chosen
    assert CliRunner().invoke(worker, ["--device", "cuda"]).exit_code == 0
    assert chosen == ["cuda"]


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_device_set_for_all_processes_is_not_a_silos(
    started: list[list[str]],
    chosen: list[str],
    three: Settings,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
) -> None:
    elsewhere = three.model_copy(update={"device": device})
    monkeypatch.setattr(runtime, "services", lambda: Opened(elsewhere))
    done = CliRunner().invoke(worker, ["--silo", "0"])
    assert done.exit_code == 0, done.output
    assert chosen == ["cpu"]
    assert ("silos compute on the processor" in done.output) == (device == "cuda")


@pytest.mark.parametrize(
    ("exitcode", "signal", "status"), [(None, None, 0), (0, 0, 0), (1, 1, 0), (1, None, 1)]
)
def test_a_worker_that_an_error_ended_says_so(
    started: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    exitcode: int | None,
    signal: int | None,
    status: int,
) -> None:
    """Celery returns from an error as from a signal, and the command ended with status 0."""
    from workers.celery_app import app

    def main(_: list[str]) -> None:
        worker_init.send(sender=Ended(exitcode))
        monkeypatch.setattr(state, "should_stop", signal)

    monkeypatch.setattr(state, "should_stop", None)
    monkeypatch.setattr(app, "worker_main", main)
    assert CliRunner().invoke(worker, []).exit_code == status
