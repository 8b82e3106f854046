"""A directory that somebody else may write to, such as a share: access never leaves it.

Anyone with write access there may place a link to the service's keys at any moment. So all
access is by names relative to the opened directory, and no link is followed.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from app.backup.errors import BackupError
from lethe.files import PARTIAL, SYNCED_AT_ONCE, open_plain


class Folder:
    """An open directory. Written files are durable, as in `lethe.files`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor, self.path = descriptor, path

    def __str__(self) -> str:
        return str(self.path)

    def is_at(self, path: Path) -> bool:
        """Return whether this directory is the one at `path`."""
        try:
            found = path.stat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._descriptor))

    def names(self) -> list[str]:
        """Return the names of all entries."""
        return os.listdir(self._descriptor)

    @contextmanager
    def inside(self, name: str, *, new: bool = False) -> Iterator["Folder"]:
        """Open the directory `name`. new: create it if it is missing.

        Raises BackupError: it is a link or a file.
        """
        path = self.path / name
        with _named(path):
            if new:
                with suppress(FileExistsError):
                    os.mkdir(name, mode=0o700, dir_fd=self._descriptor)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                descriptor = os.open(name, flags, dir_fd=self._descriptor)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    raise BackupError(
                        f"{path} is a link or a file, and no directory: remove it, and find "
                        f"out who else writes to {self.path}"
                    ) from None
                raise
        try:
            yield Folder(descriptor, path)
        finally:
            os.close(descriptor)

    def open(self, name: str) -> BufferedReader:
        """Open a plain file, as `open_plain`."""
        with _named(self.path / name):
            return os.fdopen(open_plain(name, folder=self._descriptor), "rb")

    def open_lock(self, name: str) -> int:
        """Return a descriptor of a lock file, which is created if it is missing.

        Raises BackupError: it is not a plain file.
        """
        path = self.path / name
        # Following a link would create a file elsewhere; opening a pipe would block forever.
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with _named(path):
            try:
                descriptor = os.open(name, flags, 0o600, dir_fd=self._descriptor)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                    raise
                descriptor = None
        if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        if descriptor is not None:
            os.close(descriptor)
        raise BackupError(
            f"{path} is a link, a pipe or a directory, and no plain file: remove it, and look "
            f"who else writes to {self.path}"
        )

    def write_durably(self, name: str, data: bytes) -> None:
        """Write a file, as `lethe.files.write_durably`."""
        self._write(name, data)
        self.sync()

    def write_all_durably(self, files: Mapping[str, bytes]) -> None:
        """Write files, as `lethe.files.write_all_durably`."""
        with ThreadPoolExecutor(min(SYNCED_AT_ONCE, len(files) or 1)) as pool:
            # Consume the results, or errors of threads would be lost.
            list(pool.map(self._write, files.keys(), files.values()))
        self.sync()

    @contextmanager
    def open_durably(self, name: str) -> Iterator[BinaryIO]:
        """Write a file in pieces, as `lethe.files.open_durably`."""
        with self._written(name) as file:
            yield file
        self.sync()

    def unlink(self, name: str) -> None:
        """Remove a file, or a link (not its target)."""
        with _named(self.path / name):
            os.unlink(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        """Make the directory's entries durable."""
        with _named(self.path):
            os.fsync(self._descriptor)

    def _write(self, name: str, data: bytes) -> None:
        with self._written(name) as file:
            file.write(data)

    @contextmanager
    def _written(self, name: str) -> Iterator[BinaryIO]:
        partial, here = f"{PARTIAL}{token_hex(8)}", self._descriptor
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with _named(self.path / name):
            descriptor = os.open(partial, flags, 0o600, dir_fd=here)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(partial, name, src_dir_fd=here, dst_dir_fd=here)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(partial, dir_fd=here)


@contextmanager
def open_folder(path: Path, *, new: bool = False) -> Iterator[Folder]:
    """Open a directory named by the operator, who may use a link; create it if it is missing.

    Raises BackupError: `new` is set and the directory exists.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=not new)
    except FileExistsError:
        if new:
            raise BackupError(
                f"{path} exists: a backup is written into a new directory"
            ) from None
        raise
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(path, flags | (os.O_NOFOLLOW if new else 0))
    try:
        yield Folder(descriptor, path)
    finally:
        os.close(descriptor)


def opened(place: Folder | Path, name: str) -> BufferedReader:
    """Open a plain file of a directory, as `open_plain`."""
    if isinstance(place, Folder):
        return place.open(name)
    return os.fdopen(open_plain(place / name), "rb")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Put the whole path into errors: calls by descriptor only report the name."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
