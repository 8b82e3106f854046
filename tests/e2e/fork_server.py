"""A process that has imported what Lethe's processes import, and forks them when asked.

Importing costs 2.5 s of a core, most of what a process killed after its first request takes,
and a kill is followed by a start. What is forked is a process like any other: it has its own
memory, opens everything itself, is found by its pid and dies by SIGKILL. The server has done
nothing but import: it read no setting, opened no file of an installation and runs one thread.
"""

import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from typing import Any

MODULES = [
    "alembic.command",
    "anyio._backends._asyncio",
    "app.broker",
    "app.broker_redis",
    "app.cli.serve",
    "app.main",
    "app.notices.sender",
    "app.protocols.forms",
    "app.purge.retention",
    "app.uploads.evaluation",
    "app.uploads.npz",
    "billiard.pool",
    "celery.app.control",
    "celery.app.log",
    "celery.apps.worker",
    "celery.backends.base",
    "celery.beat",
    "celery.bin.celery",
    "celery.concurrency.solo",
    "celery.events.receiver",
    "celery.fixups.django",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "encodings.idna",
    "httpcore2",
    "kombu.mixins",
    "kombu.transport.filesystem",
    "kombu.transport.redis",
    "lethe.client",
    "models.database.pipeline",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "workers.cli.client",
    "workers.cli.round",
    "workers.cli.worker",
    "workers.methods.ridge.acu",
    "workers.methods.ridge.ridge_woodbury",
    "workers.runtime",
    "workers.schedule",
    "workers.jobs.certify",
    "workers.jobs.execute",
    "workers.jobs.sweep",
    "workers.jobs.verify",
    "tests.e2e.prepared",
]
PART_BYTES = 1 << 16


def serve(connection: socket.socket, modules: Sequence[str]) -> None:
    """Import the modules; then answer requests, one at a time, until none can come."""
    for name in modules:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork would copy what the other threads hold"
    assert "workers.celery_app" not in sys.modules, "it reads the environment when imported"
    running: set[int] = set()
    while received := receive(connection):
        request, descriptors = received
        answer: int | None = None
        if "poll" in request:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            if ended:
                running.remove(ended)
                answer = os.waitstatus_to_exitcode(status)
        else:
            answer = fork(connection, request, descriptors)
            running.add(answer)
        connection.sendall(json.dumps(answer).encode() + b"\n")
    for pid in running:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return a request and the descriptors that came with it, None at the end."""
    message, descriptors, _, _ = socket.recv_fds(connection, PART_BYTES, 3)
    while message and not message.endswith(b"\n"):
        message += connection.recv(PART_BYTES)
    return (json.loads(message), descriptors) if message else None


def fork(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> int:
    """Fork one `lethe` command and return its pid, once it leads a session of its own."""
    ready, started = os.pipe()
    pid = os.fork()
    if pid == 0:
        connection.close()
        os.setsid()
        os.close(started)
        os.chdir(request["directory"])
        become(request["arguments"], request["environment"], descriptors)
    os.close(started)
    os.read(ready, 1)
    for descriptor in (ready, *descriptors):
        os.close(descriptor)
    return pid


def become(arguments: list[str], environment: dict[str, str], descriptors: list[int]) -> None:
    """Be `lethe` with these arguments, environment and standard streams; never returns."""
    from lethe.cli.main import main

    status = 1
    try:
        for stream, descriptor in enumerate(descriptors):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        if ahead := environment.get("LETHE_TEST_HOURS_AHEAD"):
            set_ahead(int(ahead))
        sys.argv = ["lethe", *arguments]
        main()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def set_ahead(hours: int) -> None:
    """Let this process believe that it is so many hours later; the others do not."""
    from models.database import types

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(hours=hours)

    setattr(types, "datetime", Ahead)  # noqa: B010 - a name that it only imports


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the tests, and they stop this
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    os._exit(0)  # taking the modules down again takes a second, and nothing of it is needed
