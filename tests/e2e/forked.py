"""Asks the fork server for processes, and about them."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.e2e.fork_server import MODULES, PART_BYTES

POLL_S = 0.02


class Forked:
    """One process: what these tests use of `subprocess.Popen`."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self.pid = pid
        self._server = server
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, minus the signal that killed it, or None while it runs."""
        if self._status is None:
            self._status = self._server.ask({"poll": self.pid})
        return self._status

    def wait(self, timeout: float = 60.0) -> int:
        """Return the exit status.

        Raises:
            TimeoutError: It still ran after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} still ran after {timeout} s")
            time.sleep(POLL_S)
        return status


class ForkServer:
    """The server's end of the connection that the tests hold."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: Sequence[int],
        directory: str = ".",
    ) -> Forked:
        """Start `lethe` with standard input, output and error on these descriptors."""
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": directory,
        }
        return Forked(self, int(self.ask(request, streams)))

    def ask(self, request: dict[str, Any], streams: Sequence[int] = ()) -> Any:
        """Send one request and return its answer."""
        message = json.dumps(request).encode() + b"\n"
        with self._lock:
            sent = socket.send_fds(self._connection, [message], streams)
            self._connection.sendall(message[sent:])
            answer = self._connection.recv(PART_BYTES)  # a number: never in two parts
        assert answer, "the fork server ended; its error is above"
        return json.loads(answer)


@contextmanager
def fork_server(modules: Sequence[str] = MODULES) -> Iterator[ForkServer]:
    """Start a server; it ends, with all it started, with the block or with the tests."""
    here, there = socket.socketpair()
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LETHE_")}
    with here, there:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.fork_server", str(there.fileno()), *modules],
            env={**clean, "OPENBLAS_NUM_THREADS": "1"},  # a fork does not copy BLAS's threads
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
        )
        there.close()
        try:
            yield ForkServer(here)
        finally:
            here.close()
            process.wait(30)
