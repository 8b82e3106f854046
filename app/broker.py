"""Celery's filesystem broker with atomic writes and validated messages.

kombu 5.7 opens a message's file under its final name and then writes it. A worker that reads
in between gets an empty file, fails to parse it and exits: seen about once in 300 messages.
Here a message is written under another name and renamed, which POSIX makes atomic.

Messages that Lethe did not send are dropped and counted (`app.nudges`): in kombu each would
end the worker that reads it and, requeued, the next one.
"""

import fcntl
import json
import logging
import os
import shutil
import uuid
from pathlib import Path
from queue import Empty
from time import time_ns
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.filesystem import Channel, Transport

from app.nudges import LONGEST, MessageRefusedError, rebuild
from lethe.files import open_plain

log = logging.getLogger(__name__)

SCHEME = "lethe-filesystem"
SUFFIX, TAKEN = ".msg", ".taken"
REFUSED = "refused"  # file in the control folder: how many messages were dropped, in decimal


def tell_refused(error: MessageRefusedError) -> None:
    """Log that a message was dropped, without its content, which may be anything."""
    log.warning("a message was dropped from the broker (%s): see /readyz for how many", error)


class AtomicChannel(Channel):
    """Writes each message by rename, and delivers only validated ones."""

    # kombu names the second parameter in two ways and passes it by position.
    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:  # type: ignore[override]
        folder = Path(self.data_folder_out)
        # Delivered in the order of file names: by priority, as Redis hands them out, then by
        # time; nanoseconds since 1970 survive a restart.
        priority = self._get_message_priority(message)  # type: ignore[no-untyped-call]
        stem = f"{priority}_{time_ns():020}_{uuid.uuid4()}"
        _write(folder / f"{stem}.{queue}{SUFFIX}", json.dumps(message))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """Take the oldest message of a queue. Raises Empty if there is none."""
        folder = Path(self.data_folder_in)
        wanted = f"{queue}{SUFFIX}"
        for name in sorted(os.listdir(folder)):
            if name.partition(".")[2] != wanted:
                continue
            taken = folder / f"{uuid.uuid4()}{TAKEN}"
            try:
                os.rename(folder / name, taken)
            except OSError:  # another worker was faster
                continue
            try:
                return rebuild(_read(taken), queue)
            except MessageRefusedError as error:
                tell_refused(error)
                count_refused(Path(self.control_folder))
            finally:
                _remove(taken)
        raise Empty

    def refused(self) -> int:
        """Return how many messages were ever dropped."""
        return read_refused(Path(self.control_folder))


def _read(path: Path) -> bytes:
    """Return a message's bytes. Raises MessageRefusedError if it is no small regular file."""
    try:
        descriptor = open_plain(path)
    except OSError as error:
        raise MessageRefusedError(f"not readable: {type(error).__name__}") from None
    try:
        if os.fstat(descriptor).st_size > LONGEST:
            raise MessageRefusedError("no file of a message's size")
        return os.read(descriptor, LONGEST + 1)
    finally:
        os.close(descriptor)


def _write(path: Path, text: str) -> None:
    """Write a file atomically. Raises OSError: the disk is full or failing; nothing is left."""
    unfinished = path.with_name(f"{uuid.uuid4()}.unfinished")
    try:
        unfinished.write_text(text)
        os.replace(unfinished, path)
    except OSError:
        # Each nudge would leave one, which each worker lists at every look for messages.
        unfinished.unlink(missing_ok=True)
        raise


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # a directory
        shutil.rmtree(path, ignore_errors=True)


def count_refused(control_folder: Path) -> None:
    """Add one to the count of dropped messages, unless its path is not a regular file."""
    try:
        descriptor = open_plain(control_folder / REFUSED, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        log.warning("%s is no plain file, and is not written: remove it", REFUSED)
        return
    with os.fdopen(descriptor, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        count = _number(file.read(32)) + 1
        file.seek(0)
        file.write(f"{count}\n".encode())


def read_refused(control_folder: Path) -> int:
    """Return how many messages were ever dropped."""
    try:
        descriptor = open_plain(control_folder / REFUSED)
    except FileNotFoundError:
        return 0
    with os.fdopen(descriptor, "rb") as file:
        return _number(file.read(32))


def _number(text: bytes) -> int:
    return int(text) if text.strip().isdigit() else 0


def bind(control_folder: Path, queue: str) -> None:
    """Write the routing table of `queue` atomically."""
    control_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    table = control_folder / f"{queue}.exchange"
    if not table.exists():
        _write(table, json.dumps([[queue, "", queue]]))  # a concurrent writer writes the same


class AtomicTransport(Transport):
    """The filesystem transport over `AtomicChannel`."""

    Channel = AtomicChannel

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """Empty: kombu would warn at each start that a folder has no host name."""
        return {}


TRANSPORT_ALIASES[SCHEME] = f"{__name__}:AtomicTransport"
for scheme in ("redis", "rediss"):
    TRANSPORT_ALIASES[scheme] = "app.broker_redis:CheckedTransport"
