"""Temporary directories with copies of rows or keys.

Their rows have wrapped keys of data that may be erased since, so none may be left behind. A
process holds the lock of the directory it uses; a directory whose lock is free was left by a
killed process, and is removed before the next one is created.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp

SUFFIX = ".scratch"  # only directories with this suffix are removed


@contextmanager
def scratch_place(directory: Path, what: str) -> Iterator[Path]:
    """Yield a new directory in `directory`, named after its purpose, and remove it."""
    remove_leftovers(directory)
    place, descriptor = _make(directory, what)
    try:
        yield place
    finally:
        shutil.rmtree(place)
        os.close(descriptor)


def remove_leftovers(directory: Path) -> None:
    """Remove directories of killed processes; `lethe doctor` reports those that remain."""
    for place in directory.glob(f"*{SUFFIX}"):
        with _unused(place) as unused:
            if unused:
                shutil.rmtree(place, ignore_errors=True)


def leftovers(directory: Path, older: timedelta) -> list[Path]:
    """Return directories of killed processes that are older than `older`."""
    found = []
    for place in sorted(directory.glob(f"*{SUFFIX}")):
        with _unused(place) as unused, suppress(FileNotFoundError):
            if unused and time.time() - place.stat().st_mtime > older.total_seconds():
                found.append(place)
    return found


def _make(directory: Path, what: str) -> tuple[Path, int]:
    while True:
        place = Path(mkdtemp(prefix=f"{what}-", suffix=SUFFIX, dir=directory))
        if (descriptor := _lock(place)) is not None:
            if place.exists():
                return place, descriptor
            os.close(descriptor)  # another process took it for a leftover


@contextmanager
def _unused(place: Path) -> Iterator[bool]:
    """Yield whether a directory is unused; if so, it stays locked within the block."""
    descriptor = _lock(place)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(place: Path) -> int | None:
    """Lock a directory and return the descriptor; None if it is locked or gone."""
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(place, flags)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
