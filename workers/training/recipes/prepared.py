"""Fits in processes forked from a template that has already imported the libraries.

Importing scikit-learn takes two seconds of a processor, most of a small fit. A template
(`template`) imports it once for a number of threads, which libraries read when they are
loaded. Each order still runs in its own process, with rows from a pipe and the limits of
`child`. If there is no template, because the system does not support it or it is in use, the
caller starts a process itself.
"""

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import FileIO

ORDER, STOP, READY = b"o", b"s", b"r"
START_SECONDS, END_SECONDS = 60, 10
BLOCK = 1 << 16


@dataclass(eq=False)
class Template:
    """A running template. owner: the process that started it; its forks cannot use it."""

    process: "subprocess.Popen[bytes]"
    link: socket.socket
    owner: int = field(default_factory=os.getpid)
    busy: threading.Lock = field(default_factory=threading.Lock)

    def end(self) -> None:
        """End the template and its fork, and wait for it."""
        self.link.close()  # the template then ends
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Spent:
    """Processor seconds of the forked processes, for benchmarks."""

    seconds: float = 0.0


SPENT = Spent()
TEMPLATES: dict[int, Template] = {}  # of this process, by number of threads
_starting = threading.Lock()


def answer(
    head: Callable[[int], bytes],
    rows: bytes,
    threads: int,
    environment: Mapping[str, str],
    seconds: float,
) -> tuple[bytes, int] | None:
    """Return a forked process's answer and exit status; None if none can be forked.

    head: the bytes sent before the rows, given the parent's process id. environment: for the
    libraries, a function of the number of threads.

    Raises TimeoutError after `seconds`; no process of the order is then running.
    """
    template = _template(threads, environment)
    if template is None or not template.busy.acquire(blocking=False):
        return None
    try:
        sent = head(template.process.pid) + rows
        return _ordered(template, sent, time.monotonic() + seconds)
    finally:
        template.busy.release()


def end_all() -> None:
    """End the templates of this process."""
    with _starting:
        for template in TEMPLATES.values():
            if template.owner == os.getpid():
                template.end()
        TEMPLATES.clear()


atexit.register(end_all)


def _template(threads: int, environment: Mapping[str, str]) -> Template | None:
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    with _starting:
        found = TEMPLATES.get(threads)
        if found is not None and found.owner == os.getpid():
            if found.process.poll() is None:
                return found
            found.end()
        TEMPLATES.pop(threads, None)
        if (started := _start(environment)) is not None:
            TEMPLATES[threads] = started
        return started


def _start(environment: Mapping[str, str]) -> Template | None:
    mine, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.training.recipes.template", str(number)],
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=dict(environment),
            start_new_session=True,
        )
    started = Template(process, mine)
    mine.settimeout(START_SECONDS)
    try:
        if mine.recv(1) == READY:
            return started
    except OSError:
        pass
    started.end()
    return None


def _ordered(template: Template, sent: bytes, until: float) -> tuple[bytes, int] | None:
    asked, to_child = os.pipe()
    from_child, answered = os.pipe()
    try:
        socket.send_fds(template.link, [ORDER], [asked, answered])
    except OSError:  # it has ended, for example after its idle time
        os.close(to_child)
        os.close(from_child)
        return None
    finally:
        os.close(asked)
        os.close(answered)
    try:
        with open(from_child, "rb", buffering=0), open(to_child, "wb", buffering=0) as pipe:
            found = _exchange(pipe, from_child, sent, until)
        status = _status(template, until)
    except TimeoutError:
        _stop(template)
        raise
    return None if status is None else (found, status)


def _stop(template: Template) -> None:
    """End the order's process; if the template does not say that it ended, the template too.

    Its answer would otherwise come late, and pass for that to the next order.
    """
    try:
        template.link.sendall(STOP)
        _status(template, time.monotonic() + END_SECONDS)
    except OSError:  # TimeoutError is one
        template.end()


def _exchange(pipe: FileIO, from_child: int, sent: bytes, until: float) -> bytes:
    """Send everything and close the pipe; return the whole answer. Raises TimeoutError."""
    os.set_blocking(pipe.fileno(), False)
    left, parts = memoryview(sent), [b""]
    while True:
        wait = max(0.0, until - time.monotonic())
        asked = [] if pipe.closed else [pipe]
        reads, writes, _ = select.select([from_child], asked, [], wait)
        if not reads and not writes:
            raise TimeoutError
        if writes:
            try:
                left = left[pipe.write(left[:BLOCK]) or 0 :]
            except BrokenPipeError:
                left = left[:0]
            if not left:
                pipe.close()  # the child reads to its end
        if reads:
            parts.append(os.read(from_child, BLOCK))
            if not parts[-1]:
                return b"".join(parts)


def _status(template: Template, until: float) -> int | None:
    """Return the forked process's exit status; None if the template ended, which ends it too.

    Raises TimeoutError.
    """
    told = b""
    while not told.endswith(b"\n"):
        template.link.settimeout(max(0.01, until - time.monotonic()))
        try:
            part = template.link.recv(BLOCK)
        except TimeoutError:
            raise
        except OSError:
            part = b""
        if not part:
            return None
        told += part
    said = json.loads(told)
    SPENT.seconds += said["seconds"]
    return int(said["status"])
