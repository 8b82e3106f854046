"""A PostgreSQL that is cut off: without a token for /metrics the database is named.

With one nobody can scrape: the database knows whose the token is.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.e2e.alerts.fault import Fault
from tests.e2e.alerts.look import see
from tests.e2e.alerts.prometheus import configured, watching
from tests.e2e.forked import ForkServer
from tests.e2e.harness import running
from tests.servers import free_port


class Way:
    """The way to a server's socket, which can be cut."""

    def __init__(self, there: Path, here: Path) -> None:
        self._there, self._here = there, here
        self._open: list[socket.socket] = []
        self._listener: socket.socket | None = None

    def open(self) -> None:
        """Have connections pass."""
        self._here.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._here))
        self._listener.listen(64)
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """End the connections that there are, and refuse others."""
        assert self._listener is not None
        self._here.unlink()
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._there))
            except OSError:  # it was cut
                return
            self._open += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=_pass, args=pair, daemon=True).start()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def way_to(url: str, directory: Path) -> Iterator[tuple[Way, str]]:
    """Yield a way to a server on a socket, and the URL by it."""
    parsed = make_url(url)
    name = f".s.PGSQL.{parsed.port or 5432}"
    host = parsed.query["host"]
    assert isinstance(host, str)
    way = Way(Path(host) / name, directory / name)
    way.open()
    by = parsed.update_query_dict({"host": str(directory)})
    yield way, by.render_as_string(hide_password=False)
    with suppress(OSError):
        way.cut()


CUTS = {
    "token": Fault(
        ("LetheAway",),
        "PostgreSQL is cut off; `/metrics` asks for a token",
        "the way to it is opened",
        frozenset({"LetheProcessAway"}),  # both jobs have the API process
        blind=True,
    ),
    "open": Fault(
        ("LethePartAway of database", "LetheNotReady of database"),
        "PostgreSQL is cut off; `LETHE_METRICS_ACCESS=open`",
        "`/readyz` names it; the way to it is opened",
        frozenset({"LetheProcessAway"}),
        blind=True,
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("access", CUTS)
def test_a_database_that_is_cut_off(
    access: str,
    postgres_url: str,
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    forks: ForkServer,
) -> None:
    directory = tmp_path_factory.mktemp("cut")  # short: a socket's path has 107 bytes at most
    with (
        way_to(postgres_url, directory) as (way, url),
        running(directory / "service", url, redis_url, forks) as processes,
    ):
        processes.port, worker = free_port(), f"127.0.0.1:{free_port()}"
        processes.more = {"LETHE_METRICS_ACCESS": access, "LETHE_WORKER_METRICS": worker}
        processes.start_api()
        processes.start_worker()
        api = f"127.0.0.1:{processes.port}"
        config = configured(directory, api, worker, processes.token)
        with watching(config) as prometheus:

            def cut() -> Iterator[None]:
                way.cut()
                yield
                way.open()

            see(CUTS[access], cut, prometheus, {api: "API", worker: "worker"})
