"""The demonstration's service ignores the surrounding settings, and ends with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from workers.demo.service import LocalService, stopped_on_failure

INHERITED = ["LETHE_MASTER_KEY", "LETHE_DATABASE_URL", "LETHE_FAULT", "LETHE_SOMETHING_NEW"]


def test_no_inherited_setting_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in INHERITED:
        monkeypatch.setenv(name, "inherited")
    monkeypatch.setenv("LETHE_ORIGIN", "inherited")
    monkeypatch.setenv("PATH_TO_KEEP", "kept")
    environment = LocalService(tmp_path, tmp_path / "log").environment
    assert {name for name in environment if name.startswith("LETHE_")} == {
        "LETHE_DATA_DIR",
        "LETHE_DECIDE",
        "LETHE_ORIGIN",
        "LETHE_ENVIRONMENT",
    }
    assert "inherited" not in environment.values()
    assert environment["PATH_TO_KEEP"] == "kept"


# The service is a process that waits; it prints its id and the demonstration continues.
DEMONSTRATION = """
import signal, subprocess, sys
from pathlib import Path
from workers.demo.service import LocalService, stopped_on_failure
for one in (signal.SIGTERM, signal.SIGHUP):  # whoever starts the tests may ignore them
    signal.signal(one, signal.SIG_DFL)
service = LocalService(Path(sys.argv[1]), Path(sys.argv[1]) / "log")
with stopped_on_failure(service):
    null = subprocess.DEVNULL
    service.process = subprocess.Popen(
        ["sleep", "300"], stdout=null, stderr=null, start_new_session=True
    )
    print(service.pid, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_demonstration_stops_its_service(number: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DEMONSTRATION, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demonstration:
        assert demonstration.stdout is not None
        service = int(demonstration.stdout.readline())
        demonstration.send_signal(number)
        said = demonstration.communicate(timeout=60)[1]
    try:
        assert demonstration.returncode == 128 + number
        assert said == "stopped the demo's service\n"
        with pytest.raises(ProcessLookupError):
            os.kill(service, 0)
    finally:
        with suppress(ProcessLookupError):
            os.kill(service, signal.SIGKILL)


@pytest.mark.parametrize(("end", "ran"), [(LocalService.kill, True), (LocalService.stop, None)])
def test_a_service_in_the_middle_of_a_training_ends_with_its_worker(
    end: Callable[[LocalService], bool | None],
    ran: bool | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.demo.service.STOP_SECONDS", 0)
    service = LocalService(tmp_path, tmp_path / "log")
    script = "trap '' TERM; sleep 300 & echo training; wait"
    with subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        service.process = process
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"training\n"
            assert end(service) is ran
            assert process.returncode == -signal.SIGKILL
            process.communicate(timeout=20)  # ends when no process holds the pipe any more
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert not service.kill()


def test_what_nohup_ignores_stays_ignored_and_handlers_come_back(tmp_path: Path) -> None:
    service = LocalService(tmp_path, tmp_path / "log")
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_on_failure(service):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])
    assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
