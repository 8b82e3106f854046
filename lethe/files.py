"""Files that survive a crash: complete or absent, and durable once written."""

import errno
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger(__name__)
SYNCED_AT_ONCE = 16  # files
ALONE_WAIT_S = 10.0  # for a process that is in `alone_in`, which lasts milliseconds
PARTIAL = ".partial-"  # prefix of files left unfinished by a crash; they are never read


def write_durably(path: Path, data: bytes, *, replace: bool = True, mode: int = 0o600) -> None:
    """Write `path` so that after a crash it has the old content or the new, never a part.

    The content and the name are on disk when this returns. With `replace` False an existing
    file is left alone, even if it appears while this runs.

    Raises:
        FileExistsError: `replace` is False and the file exists.
        OSError: The disk is full or failing; `path` is unchanged.
    """
    if replace:
        _write_named(path, data, mode)
    else:
        _write_named(path, data, mode, os.link)  # atomic refusal of an existing name
    sync_directory(path.parent)


def write_all_durably(directory: Path, files: Mapping[str, bytes], mode: int = 0o600) -> None:
    """Write new files of one directory as `write_durably` does, and sync them concurrently.

    Many concurrent syncs take a disk little longer than one. Raises OSError: the disk is full
    or failing; some of the files may exist.
    """
    if len(files) == 1:
        ((name, data),) = files.items()
        write_durably(directory / name, data, mode=mode)
        return
    with ThreadPoolExecutor(min(SYNCED_AT_ONCE, len(files) or 1)) as pool:
        paths = [directory / name for name in files]
        # Consume the results, or a thread's exception would be lost.
        list(pool.map(_write_named, paths, files.values(), repeat(mode)))
    sync_directory(directory)


@contextmanager
def open_durably(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Write `path` piece by piece; it appears, durably, when the block ends without error.

    Raises OSError: the disk is full or failing; `path` is unchanged.
    """
    with _named(path, mode, Path.replace) as file:
        yield file
    sync_directory(path.parent)


def open_plain(path: Path | str, flags: int = os.O_RDONLY, *, folder: int | None = None) -> int:
    """Return a descriptor of a regular file, opened without following a link or blocking.

    folder: an open directory, in which `path` is a name.

    Another process with write access to the directory could place a link to a key, which would
    be read or overwritten, or a pipe, on which this process would block for ever. Raises
    FileNotFoundError if the file is gone or is not regular.
    """
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    try:
        how = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened = os.open(path, how, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in (
            errno.ELOOP,
            errno.ENXIO,
            errno.EISDIR,
        ):  # a link, a socket, a directory
            raise gone from error
        raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise gone
    return opened


def _write_named(
    path: Path, data: bytes, mode: int, name_it: Callable[[Path, Path], object] = Path.replace
) -> None:
    """Write `path` with durable content; its name is durable once the directory is synced."""
    with _named(path, mode, name_it) as file:
        file.write(data)


@contextmanager
def _named(
    path: Path, mode: int, name_it: Callable[[Path, Path], object]
) -> Iterator[BinaryIO]:
    descriptor, name = tempfile.mkstemp(prefix=PARTIAL, dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        name_it(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make created, renamed and removed names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep out other processes that call this for the same directory.

    A file system without locks on directories, such as NFS, keeps nobody out. Raises
    BlockingIOError: another process has been in it for ALONE_WAIT_S.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)  # releases the lock


def _lock(descriptor: int) -> None:
    import fcntl  # not on Windows, where certificates can be verified too

    deadline = time.monotonic() + ALONE_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        except OSError:
            return  # there are no such locks here
        else:
            return
        time.sleep(0.01)


def keep_private() -> None:
    """Restrict files created by this process to its user; a stricter umask stays."""
    os.umask(os.umask(0o077) | 0o077)


def warn_if_shared(directory: Path) -> None:
    """Log a warning if others can read a directory that holds keys and personal data."""
    mode = directory.stat().st_mode & 0o777
    if mode & 0o077:
        log.warning(
            "the data directory has mode %03o, and others of this machine may read in it: "
            "chmod 700",
            mode,
        )
