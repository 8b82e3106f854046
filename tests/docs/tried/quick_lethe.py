"""A `lethe` for a page's shell that is forked where everything is imported already.

Each command imports for one second or two; a page enters dozens of them. The program that the
shell finds passes its arguments, environment, directory and standard streams on, and ends as
what was forked ended; if it is killed, what was forked is killed too. Servers are started from
the installed `lethe` (`Shell.start`).
"""

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.forked import POLL_S, ForkServer

SOCKET = "TRIED_SOCKET"
PROGRAM = f"""#!{sys.executable} -SE
import json, os, socket, sys

environment = dict(os.environ)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(environment.pop("{SOCKET}"))
    request = json.dumps([sys.argv[1:], environment, os.getcwd()]).encode()
    socket.send_fds(connection, [len(request).to_bytes(4)], [0, 1, 2])
    connection.sendall(request)
    answer = connection.makefile().read()
sys.exit(int(answer) if answer else "lethe was not forked: see the test's own output")
"""


@contextmanager
def quick_lethe(forks: ForkServer, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment in which `lethe` is forked; the installed one is in DIRECT."""
    folder.mkdir()
    program = folder / "lethe"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    direct = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Not in `folder`: a socket's path has 107 bytes at most.
    with (
        TemporaryDirectory(prefix="lethe-") as short,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        path = Path(short, "socket")
        listening.bind(str(path))
        listening.listen()
        serving = threading.Thread(target=_serve, args=(listening, forks), daemon=True)
        serving.start()
        yield {"PATH": f"{folder}:{direct}", "DIRECT": direct, SOCKET: str(path)}
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()


def _serve(listening: socket.socket, forks: ForkServer) -> None:
    """Run what is asked for until `listening` is shut down and all of it has ended."""
    runs: list[threading.Thread] = []
    with suppress(OSError):  # the pages have ended
        while True:
            connection, _ = listening.accept()
            runs.append(threading.Thread(target=_run, args=(connection, forks), daemon=True))
            runs[-1].start()
    for one in runs:
        one.join()


def _run(connection: socket.socket, forks: ForkServer) -> None:
    with connection, ExitStack() as given:
        size, streams, _, _ = socket.recv_fds(connection, 4, 3)
        for stream in streams:
            given.callback(os.close, stream)
        with connection.makefile("rb") as sent:
            request = sent.read(int.from_bytes(size))
        if not request or len(request) < int.from_bytes(size):
            return  # the program was killed while it asked
        arguments, environment, directory = json.loads(request)
        started = forks.start(arguments, environment, streams, directory)
        given.close()
        while (status := started.poll()) is None:
            if select.select([connection], [], [], POLL_S)[0]:  # the program ended: was killed
                os.killpg(started.pid, signal.SIGKILL)
                status = started.wait()
        with suppress(ConnectionError):
            connection.sendall(str(status if status >= 0 else 128 - status).encode())
