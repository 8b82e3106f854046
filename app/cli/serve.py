"""`lethe serve`: the HTTP service, optionally with a worker beside it."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from app.heaps import share_heaps

# Thread switch interval in seconds. The committing thread needs the interpreter after each
# answer of the database, about ten times per batch, and all submissions wait for that thread.
# Python's default of 5 ms would add up to 50 ms per batch.
SWITCH_S = 0.0005
# Longest wait at the end for answers on their way. A client that reads none of its answer would
# otherwise keep the process, and its workers, from ending. Kubernetes kills after 30 s.
GRACE_S = 20


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True, help="0 picks a free port.")
@click.option(
    "--embedded-worker", is_flag=True, help="Also run a worker, its schedule and all silos."
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="Write {base_url} here once the port is bound.",
)
def serve(host: str, port: int, embedded_worker: bool, ready_file: Path | None) -> None:
    """Serve the API at HOST:PORT, configured by the environment (LETHE_*)."""
    share_heaps()
    # Imports create half a million objects and no garbage: collection costs 10% of the start.
    gc.disable()
    import uvicorn

    from app import logs, traces
    from app.api.http.heads import BoundedHeads
    from app.main import create_app
    from app.settings import Settings

    settings = Settings()
    logs.configure(settings)
    traces.configure(settings, "lethe-api")
    application = create_app()
    gc.freeze()  # these objects are permanent: exclude them from later collections
    gc.enable()
    sys.setswitchinterval(SWITCH_S)
    listener = listen(host, port)
    bound = listener.getsockname()[1]
    base_url = f"http://{host}:{bound}"
    click.echo(f"serving {base_url}")
    # uvicorn raises the signal that ended it again, and the default action of SIGTERM would
    # leave the workers running a training whose result is lost.
    signal.signal(signal.SIGTERM, _leave)
    workers = start_workers(settings.silos) if embedded_worker else []
    try:
        # Access logs would hold request ids, which are capabilities.
        config = uvicorn.Config(
            application,
            http=BoundedHeads,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        server = uvicorn.Server(config)
        # uvicorn waits for open responses, and a stream would stay open for an hour.
        leave, streams = server.handle_exit, application.state.streams

        def ending(sig: int, frame: FrameType | None) -> None:
            streams.end()
            leave(sig, frame)

        # From here on uvicorn handles signals; one that came before left the loop half started.
        start = server.startup

        async def started(sockets: list[socket.socket] | None = None) -> None:
            await start(sockets=sockets)
            if ready_file is not None and not server.should_exit:
                _write(ready_file, {"base_url": base_url, "pid": os.getpid()})

        server.handle_exit = ending  # type: ignore[method-assign]
        server.startup = started  # type: ignore[method-assign]
        server.run(sockets=[listener])
    finally:
        traces.close()
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.wait()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ClickException if the address cannot be used."""
    try:
        listener = socket.create_server((host, port), backlog=128)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port"
        ) from None
    # Accepted connections inherit this option. asyncio sets it only on sockets that name their
    # protocol, which this one does not. The server writes a response's head and body
    # separately, so each response on a kept connection would wait 40 ms for a delayed ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _leave(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def start_workers(silos: int) -> "list[_Worker]":
    """Start the service's worker and one for each silo."""
    # Without a worker for each silo, every round would wait for its timeout.
    return [_Worker("--beat"), *(_Worker("--silo", str(number)) for number in range(silos))]


class _Worker:
    """A worker process that is restarted whenever it dies."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._stopping = threading.Event()
        self._process = self._start()
        self._watch = threading.Thread(target=self._restart, daemon=True)
        self._watch.start()

    def _start(self) -> subprocess.Popen[bytes]:
        # The worker dies with this process: it notices that its standard input closed.
        command = [sys.executable, "-m", "lethe.cli.main", "worker", "--until-eof"]
        return subprocess.Popen([*command, *self._options], stdin=subprocess.PIPE)

    def _restart(self) -> None:
        while not self._stopping.is_set():
            code = self._process.wait()
            if not self._stopping.wait(1.0):
                click.echo(f"worker ended with status {code}: starting another", err=True)
                self._start_again()

    def _start_again(self) -> None:
        """Start a process, however often the system has no memory for one at first."""
        while not self._stopping.is_set():
            try:
                self._process = self._start()
            except OSError as error:
                click.echo(f"no worker started: {error.strerror}: trying again", err=True)
                self._stopping.wait(1.0)
            else:
                break
        if self._stopping.is_set():  # `end` may have seen the process before this one
            self._process.terminate()

    def end(self) -> None:
        """Have the worker end once its task is finished."""
        self._stopping.set()
        self._process.terminate()

    def wait(self) -> None:
        """Wait for the end of the worker, and kill it if it takes too long."""
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._watch.join(timeout=30)  # else it might write a line as the interpreter ends


def _write(path: Path, value: dict[str, object]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)
