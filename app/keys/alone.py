"""Lets one command at a time change the key files, and removes unfinished files.

The log's lock is not enough: a command may stall between its log entry and its last file while
another command rotates again. The first must not overwrite the newer files with old ones.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from app.ledger.startup import ENTRIES_KEY
from lethe.errors import LetheError
from lethe.files import PARTIAL, sync_directory

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Rotated(Generic[K]):
    """A key after a command; `finished`: the command completed an interrupted one."""

    key: K
    finished: bool


class KeysBusyError(LetheError):
    """Another command changes the key files."""

    slug, title, status = "keys-busy", "Another command changes the keys", 409


@contextmanager
def alone(folder: Path) -> Iterator[Sequence[Path]]:
    """Keep other commands from changing the key files in `folder` within the block.

    Yields the unfinished files of earlier commands, and removes them if the block succeeds.
    They may contain a key, or the root secret sealed under one. Raises KeysBusyError: another
    command is changing the keys.
    """
    # This file is never moved, and nothing else locks it. NFS requires write access for a lock.
    with locked(folder / ENTRIES_KEY, os.O_RDWR):
        left = [
            folder / one.name
            for one in os.scandir(folder)
            if one.name.startswith(PARTIAL) and not one.is_dir(follow_symlinks=False)
        ]
        yield left
        remove(folder, left)


@contextmanager
def locked(path: Path, flags: int) -> Iterator[None]:
    """Hold the lock of a file that is never moved, opened with `flags`.

    Raises KeysBusyError: another command holds it.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released on close
        except BlockingIOError:
            raise KeysBusyError(
                "another command changes the keys: run this again once it has ended. If it "
                f"stands still, resume it or end it (`lsof {path}` names it)"
            ) from None
        yield
    finally:
        os.close(descriptor)


def remove(folder: Path, left: Sequence[Path]) -> None:
    """Remove unfinished files; a link is removed without its target.

    A file that a silo's worker was just writing has its final name by then.
    """
    for path in left:
        path.unlink(missing_ok=True)
    if left:
        sync_directory(folder)
