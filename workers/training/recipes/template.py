"""A process that has imported the libraries and forks a fitting process for each order.

`python -m workers.training.recipes.template SOCKET`, started only by `prepared`. The socket
delivers the pipes of one order at a time. The template itself holds no row, recipe or secret:
the forked process reads them, after limiting itself as `child` does.
"""

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

from workers.training.recipes import child
from workers.training.recipes.prepared import ORDER, READY

IDLE_SECONDS = 600  # without an order it ends, to free the libraries' memory


def main() -> None:
    """Fork a process for each order, until the socket is closed or idle."""
    import sklearn.ensemble
    import sklearn.pipeline  # noqa: F401

    from workers.training.recipes import fit  # noqa: F401

    with socket.socket(fileno=int(sys.argv[1])) as link:
        link.sendall(READY)
        while select.select([link], [], [], IDLE_SECONDS)[0]:
            order, pipes, _, _ = socket.recv_fds(link, 1, 2)
            if order != ORDER or len(pipes) != 2:
                return
            pid = os.fork()
            if not pid:
                _serve(link, pipes)
            for one in pipes:
                os.close(one)
            if not _ended(link, pid):
                return


def _serve(link: socket.socket, pipes: list[int]) -> None:
    """Run an order in the forked process, and exit."""
    try:
        os.setsid()
        link.close()
        for place, pipe in enumerate(pipes):
            os.dup2(pipe, place)
            os.close(pipe)
        child.main()
    finally:
        os._exit(1)


def _ended(link: socket.socket, pid: int) -> bool:
    """Report how the process ended; kill it first if the link says so or is closed.

    Returns whether another order may follow.
    """
    descriptor = os.pidfd_open(pid)
    ready, _, _ = select.select([link.fileno(), descriptor], [], [])
    os.close(descriptor)
    more = True
    if link.fileno() in ready:
        more = bool(link.recv(1))
        for kill in (os.killpg, os.kill):  # it may not have its own session yet
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    told = {
        "seconds": used.ru_utime + used.ru_stime,
        "status": os.waitstatus_to_exitcode(status),
    }
    with suppress(OSError):
        link.sendall(json.dumps(told).encode() + b"\n")
    return more


if __name__ == "__main__":
    main()
