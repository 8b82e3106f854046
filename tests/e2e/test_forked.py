"""What the fork server starts is a process like one that was executed."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.e2e import fork_server as server_side
from tests.e2e.forked import ForkServer, fork_server


def test_status_streams_and_environment_are_a_processes_own(
    forks: ForkServer, tmp_path: Path
) -> None:
    commands = {"refused": ["token", "new", "--scope", "unheard-of"], "made": ["migrate"]}
    status, said = {}, {}
    for name, command in commands.items():
        settings = {"LETHE_DATA_DIR": str(tmp_path / name)}
        with (tmp_path / f"{name}.err").open("wb") as error, Path(os.devnull).open() as none:
            streams = [none.fileno(), error.fileno(), error.fileno()]
            status[name] = forks.start(command, settings, streams).wait()
        said[name] = (tmp_path / f"{name}.err").read_text()
    assert status == {"refused": 2, "made": 0}
    assert "unheard-of" in said["refused"]
    assert "unheard-of" not in said["made"]
    assert [path.is_dir() for path in (tmp_path / "refused", tmp_path / "made")] == [
        False,
        True,
    ]


def test_a_forked_process_leads_its_session_and_ends_with_the_server(tmp_path: Path) -> None:
    environment = {**os.environ, "LETHE_DATA_DIR": str(tmp_path / "data")}
    waits = ["log", "verify", str(tmp_path / "pipe"), "--vkey", str(tmp_path / "pipe")]
    os.mkfifo(tmp_path / "pipe")  # nobody writes: whoever reads it waits
    with fork_server([]) as server, Path(os.devnull).open("r+") as none:
        killed, left = (server.start(waits, environment, [none.fileno()] * 3) for _ in range(2))
        assert {os.getsid(process.pid) for process in (killed, left)} == {killed.pid, left.pid}
        assert killed.poll() is None
        os.killpg(killed.pid, signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        with pytest.raises(TimeoutError, match="still ran"):
            left.wait(timeout=0.0)
    with pytest.raises(ProcessLookupError):
        os.kill(left.pid, 0)


def test_forking_beside_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    with pytest.raises(AssertionError, match="threads"):
        server_side.serve(None, [])  # type: ignore[arg-type]
