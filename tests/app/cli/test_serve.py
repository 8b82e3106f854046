"""`lethe serve`: how it listens, and what --embedded-worker starts beside the API."""

import errno
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest

from app.cli import serve


class Started:
    """A stand-in for a process that ends on demand."""

    commands: list[list[str]]
    last: "Started"

    def __init__(self, command: list[str], **_: Any) -> None:
        self.commands.append(command[command.index("worker") :])
        self.ended = threading.Event()
        type(self).last = self

    def terminate(self) -> None:
        self.ended.set()

    def wait(self, timeout: float | None = None) -> int:
        assert self.ended.wait(30)
        return 0


@pytest.mark.parametrize("silos", [0, 2])
def test_every_silo_has_a_worker(silos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Started, "commands", [], raising=False)
    monkeypatch.setattr(subprocess, "Popen", Started)
    before = threading.enumerate()
    workers = serve.start_workers(silos)
    expected = [["--beat"], *(["--silo", str(number)] for number in range(silos))]
    assert Started.commands == [["worker", "--until-eof", *options] for options in expected]
    for worker in workers:
        worker.end()
    for worker in workers:
        worker.wait()
    assert set(threading.enumerate()) <= set(before)  # nobody restarts it


def test_a_worker_is_started_again_once_the_system_has_room_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Started, "commands", [], raising=False)
    monkeypatch.setattr(subprocess, "Popen", Started)
    [worker] = serve.start_workers(0)
    failures, again = [OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))], threading.Event()

    def start(command: list[str], **more: Any) -> Started:
        if failures:
            raise failures.pop()  # of a fork, when memory is short
        again.set()
        return Started(command, **more)

    monkeypatch.setattr(subprocess, "Popen", start)
    Started.last.ended.set()  # the first one dies
    assert again.wait(30)
    worker.end()
    worker.wait()
    assert len(Started.commands) == 2


def test_a_service_that_is_terminated_ends_its_workers(tmp_path: Path) -> None:
    """In a separate process, as uvicorn raises the signal again; its worker only waits."""
    program = f"""
import subprocess, sys, types
import app.main, fastapi
from app.cli import serve
def create_app():
    made = fastapi.FastAPI()
    made.state.streams = types.SimpleNamespace(end=lambda: None)
    return made
app.main.create_app = create_app
start = subprocess.Popen
def waiting(command, **more):
    more.pop("stdin")  # a worker that does not notice the end of its input
    started = start([sys.executable, "-c", "import time; time.sleep(600)"], **more)
    print(started.pid, flush=True)
    return started
serve.subprocess.Popen = waiting
serve.serve(["--port", "0", "--embedded-worker", "--ready-file", {str(tmp_path / "ready")!r}])
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdout is not None
        lines = [service.stdout.readline(), service.stdout.readline()]
        while not (tmp_path / "ready").exists():
            assert service.poll() is None
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 128 + signal.SIGTERM
    [worker] = [int(line) for line in lines if line.strip().isdigit()]
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_a_client_that_reads_nothing_keeps_no_service_from_ending(tmp_path: Path) -> None:
    program = f"""
import types
import app.main, fastapi
from app.cli import serve
def create_app():
    made = fastapi.FastAPI()
    made.state.streams = types.SimpleNamespace(end=lambda: None)
    @made.get("/")
    def large() -> fastapi.Response:
        return fastapi.Response(bytes(1 << 26))  # more than the system's buffers take
    return made
app.main.create_app = create_app
serve.GRACE_S = 1
serve.serve(["--port", "0", "--ready-file", {str(tmp_path / "ready")!r}])
"""
    with subprocess.Popen([sys.executable, "-c", program]) as service:
        while not (tmp_path / "ready").exists():
            assert service.poll() is None
        port = urlsplit(json.loads((tmp_path / "ready").read_text())["base_url"]).port
        with socket.create_connection(("127.0.0.1", port or 0)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            assert client.recv(1) == b"H"
            service.send_signal(signal.SIGTERM)
            try:
                assert service.wait(60) == 128 + signal.SIGTERM
            finally:
                service.kill()


def test_the_server_bounds_the_heads_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    import app.main
    from app import logs, traces
    from app.api.http.heads import BoundedHeads

    class ReadyError(Exception):
        pass

    def configured(*_: Any, **options: Any) -> None:
        assert options["http"] is BoundedHeads
        raise ReadyError

    for place, name in ((logs, "configure"), (traces, "configure"), (gc, "freeze")):
        monkeypatch.setattr(place, name, lambda *_: None)
    monkeypatch.setattr(serve, "share_heaps", lambda: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(app.main, "create_app", lambda: None)
    monkeypatch.setattr(uvicorn, "Config", configured)
    listener = serve.listen("127.0.0.1", 0)
    monkeypatch.setattr(serve, "listen", lambda *_: listener)
    with listener, pytest.raises(ReadyError):
        serve.serve.callback("127.0.0.1", 0, False, None)  # type: ignore[misc]


def test_answers_do_not_wait_for_the_acknowledgement_of_their_head() -> None:
    with (
        serve.listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(click.ClickException, match=f"127.0.0.1:{port}: .*in use.*--port"):
            serve.listen("127.0.0.1", port)
