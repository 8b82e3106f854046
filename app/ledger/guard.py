"""The signing guard: the checkpoints that the log key signed, stored beside the key.

A database can be restored from a backup; a published checkpoint cannot be taken back. The guard
records the last signed checkpoint outside the database, so that a log which lost entries is
detected before the key signs a second history. It is durable before the note is stored
anywhere: a crash in between leaves the guard ahead of the published log by entries that are
durable themselves, and the next publication signs exactly the same text.

The file has one line of JSON per checkpoint, about 130 bytes, and is append-only: appending
takes one fsync, replacing a file three, and the file stays a record of everything the key
signed. A line that a crash cut short was never signed; it is ignored and overwritten.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe import canonical
from lethe.canonical import format_base64, parse_base64
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.log.checkpoint import (
    Checkpoint,
    CheckpointError,
    format_checkpoint,
    parse_checkpoint,
)

WAIT_S = 5.0  # for the file's lock; a holder only writes a line and syncs it
MAX_LINE = 2048  # bytes; an origin of 200 characters has at most 800
RootAt = Callable[[int], bytes]  # size -> root of the log's first `size` entries


class GuardError(LetheError):
    """The guard and the log contradict each other, so nothing is signed."""

    slug, title, status = "log-guard", "The log may not be signed", 503


class GuardMissingError(GuardError):
    """There is no guard file."""

    slug = "log-guard-missing"


class GuardDamagedError(GuardError):
    """The guard file is not one that `SigningGuard` wrote."""

    slug = "log-guard-damaged"


class GuardExistsError(GuardError):
    """A guard may be created only once."""

    slug = "log-guard-exists"
    status = 409


class RolledBackError(GuardError):
    """The log has fewer entries than a signed checkpoint."""

    slug = "log-rolled-back"


class ForkedError(GuardError):
    """The log's entries or name differ from those of a signed checkpoint."""

    slug = "log-forked"


class GuardBusyError(GuardError):
    """Another process holds the guard's lock and does not release it; it may be frozen."""

    slug = "log-guard-busy"


class SigningGuard:
    """The checkpoints that a key signed, in a file beside the key (see the module)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # The line parsed last: each transaction reads it, and it has rarely changed.
        self._parsed: tuple[bytes, Checkpoint] | None = None

    def read(self) -> Checkpoint:
        """Return the last signed checkpoint.

        Raises GuardMissingError: there is no file; GuardDamagedError: the file is not a guard.
        """
        with self._open(os.O_RDONLY) as descriptor:
            return self._last(descriptor)[0]

    def create(self, checkpoint: Checkpoint) -> None:
        """Write the first line of a new log's guard.

        Raises GuardExistsError: there is a guard already.
        """
        try:
            write_durably(self.path, format_state(checkpoint), replace=False)
        except FileExistsError:
            raise GuardExistsError(
                f"{self.path} exists: this key has signed a log before, restore that log's "
                "database instead of beginning another"
            ) from None

    def check(self, origin: str, size: int, root_at: RootAt) -> Checkpoint:
        """Return the last signed checkpoint, if a log of `size` entries extends it.

        Raises:
            RolledBackError: The log is shorter.
            ForkedError: The log has another root at the signed size, or another origin.
            GuardMissingError: There is no guard.
            GuardDamagedError: The guard cannot be read.
        """
        held = self.read()
        require_extends(held, origin, size, root_at)
        return held

    def advance(self, checkpoint: Checkpoint, root_at: RootAt) -> None:
        """Record `checkpoint` durably, so that it may then be signed.

        If two processes share a key but not a database, the second finds the first one's
        checkpoint here and refuses.

        A process that was frozen before this call, and whose transaction the server ended
        meanwhile, finds the larger checkpoint of the process that continued: it writes nothing.

        Raises GuardBusyError: another process has held the file's lock for WAIT_S; GuardError:
        as `check`.
        """
        with self._open(os.O_RDWR) as descriptor:
            _lock(descriptor, fcntl.LOCK_EX, WAIT_S)  # released on close
            held, end = self._last(descriptor)
            require_extends(held, checkpoint.origin, checkpoint.size, root_at)
            if held.size == checkpoint.size and held.root != checkpoint.root:
                raise ForkedError(
                    "the guard has another root as signed for this number of entries: "
                    "restore the database that belongs to these keys, then run `lethe log "
                    "fsck`"
                )
            if held != checkpoint:
                os.ftruncate(descriptor, end)
                line = format_state(checkpoint)
                if os.pwrite(descriptor, line, end) != len(line):
                    raise OSError("the disk took only part of a line of the signing guard")
                os.fsync(descriptor)

    def require_free(self, wait_s: float) -> None:
        """Check that no process keeps the file's lock for longer than wait_s seconds.

        Raises GuardBusyError: a process does; GuardMissingError: there is no file.
        """
        with self._open(os.O_RDONLY) as descriptor:
            _lock(descriptor, fcntl.LOCK_SH, wait_s)

    @contextmanager
    def _open(self, mode: int) -> Iterator[int]:
        try:
            descriptor = os.open(self.path, mode | os.O_CLOEXEC)
        except FileNotFoundError:
            raise GuardMissingError(
                f"{self.path} is missing: restore the keys directory from its backup, or run "
                "`lethe log init` if no log was ever begun here"
            ) from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _last(self, descriptor: int) -> tuple[Checkpoint, int]:
        """Return the last complete line's checkpoint and the offset where that line ends."""
        size = os.fstat(descriptor).st_size
        start = max(0, size - 2 * MAX_LINE)  # the last line and a truncated one after it
        tail = os.pread(descriptor, size - start, start)
        complete = tail[: tail.rfind(b"\n") + 1]
        line = complete[complete.rfind(b"\n", 0, -1) + 1 :]
        end = start + len(complete)
        if (parsed := self._parsed) is not None and parsed[0] == line:
            return parsed[1], end
        try:
            found = _parse(line)
        except (
            canonical.NotCanonicalError,
            CheckpointError,
            LookupError,
            TypeError,
            ValueError,
        ):
            raise GuardDamagedError(
                f"{self.path} is damaged: restore the keys directory from its backup"
            ) from None
        self._parsed = line, found
        return found, end


def _lock(descriptor: int, how: int, wait_s: float) -> None:
    """Take the lock of an open file; closing the descriptor releases it.

    A frozen holder keeps the lock: what it writes on waking up must be what it checked.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise GuardBusyError(
                    "another process holds the lock of the signing guard and does not go on: "
                    "resume it or end it (`lsof` names it); nothing is signed meanwhile"
                ) from None
        time.sleep(0.01)


def require_extends(held: Checkpoint, origin: str, size: int, root_at: RootAt) -> None:
    """Check that a log of `size` entries extends the signed checkpoint. Raises as `check`."""
    if origin != held.origin:
        raise ForkedError(
            "the guard belongs to a log of another name: set LETHE_ORIGIN back, a log never "
            "changes its name"
        )
    if size < held.size:
        raise RolledBackError(
            f"the database holds {size} log entries but a checkpoint over {held.size} was "
            "signed: restore a newer backup of the database; without one, begin a new log with "
            "new keys and a new LETHE_ORIGIN"
        )
    if root_at(held.size) != held.root:
        raise ForkedError(
            f"the first {held.size} log entries in the database are not those that were "
            "signed: restore the database of these keys, then run `lethe log fsck`"
        )


def format_state(checkpoint: Checkpoint) -> bytes:
    """Return the guard's file for a signed checkpoint."""
    value = {
        "origin": checkpoint.origin,
        "root": format_base64(checkpoint.root),
        "size": checkpoint.size,
    }
    return canonical.encode(value) + b"\n"


def _parse(line: bytes) -> Checkpoint:
    value = canonical.decode(line.removesuffix(b"\n"))
    checkpoint = Checkpoint(value["origin"], value["size"], parse_base64(value["root"]))
    if parse_checkpoint(format_checkpoint(checkpoint)) != checkpoint:
        raise ValueError("not a checkpoint")
    if format_state(checkpoint) != line:
        raise ValueError("more than a checkpoint")
    return checkpoint
