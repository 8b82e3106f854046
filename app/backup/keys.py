"""Copies of the keys directory, for a backup, or renewed each round by a follower.

Keys may be rotated meanwhile, so the copy has all of them as of one moment. The guard is copied
before the database's snapshot, which then has all signed entries, and the erasure journal after
it.

In a follower's copy each file is replaced atomically, but not all files together: a crash
leaves files of two rounds. A restore with copied keys always asks a mirror what was signed
since.
"""

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from app.backup.errors import BackupError
from app.backup.folder import Folder, open_folder
from app.ledger.startup import GUARD
from app.vault.journal import FILE as JOURNAL
from app.vault.root import FILE as ROOT
from lethe.files import PARTIAL

MARK = "follower.lock"  # marks a directory that `lethe backup follow` may write to

TRIES = 50  # reads of the keys, over 5 s

Signature = tuple[tuple[str, int, int, int], ...]  # name, inode, size and time of each file


def copy_guard(source: Path, target: Folder) -> None:
    """Copy the guard into a new directory, before the database's snapshot is taken."""
    target.write_durably(GUARD, (source / GUARD).read_bytes())


def copy_keys(source: Path, target: Folder) -> None:
    """Copy the other keys, and the journal last, after the snapshot.

    Raises BackupError: as `read_keys`.
    """
    target.write_all_durably(read_keys(source))
    with suppress(FileNotFoundError):
        target.write_durably(JOURNAL, (source / JOURNAL).read_bytes())


def read_keys(source: Path) -> dict[str, bytes]:
    """Return the content of all files except guard and journal as of one moment, by name.

    The end of a rotation moves a key into the place of another: reading file after file could
    find the old key but not the new one. So all files are read until none changed meanwhile.
    Raises BackupError: the files keep changing.
    """
    for _ in range(TRIES):
        with suppress(FileNotFoundError):  # a rotation removed a file meanwhile
            before = _signature(_keys(source))
            found = {path.name: path.read_bytes() for path in _keys(source)}
            if _signature(_keys(source)) == before:
                return found
        time.sleep(0.1)
    raise BackupError(
        f"{source} keeps changing: wait until no key is being rotated, and run this again"
    )


def _files(source: Path) -> list[Path]:
    files = sorted(path for path in source.iterdir() if path.is_file())
    # A revoked master key may still open an unfinished file that a crash left.
    return [path for path in files if not path.name.startswith(PARTIAL)]


def _keys(source: Path) -> list[Path]:
    return [path for path in _files(source) if path.name not in (GUARD, JOURNAL)]


def _signature(files: list[Path]) -> Signature:
    found = ((path.name, path.stat()) for path in files)
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found)


class KeysCopy:
    """The copy in `target` of the keys in `source`."""

    def __init__(self, source: Path, target: Path) -> None:
        """Prepare `target`: a new directory, or one that was followed into before.

        Raises BackupError: the directory has other files, or is the keys directory itself.
        """
        self._source, self._guard = source, b""
        with ExitStack() as held:
            # Held open, so that replacing the path cannot redirect the writes.
            self.folder = held.enter_context(open_folder(target))
            if self.folder.is_at(source):
                raise BackupError(
                    f"{target} has the keys in use: copy them to another directory"
                )
            names = self.folder.names()
            if MARK not in names and names:
                raise BackupError(
                    f"{target} has other files: keys are copied to a new or an empty directory"
                )
            os.close(self.folder.open_lock(MARK))
            self.close = held.pop_all().close

    def signature(self) -> Signature:
        """Return a value that changes whenever a key file changes."""
        return _signature(_files(self._source))

    def begin(self) -> None:
        """Read the guard, before a round's snapshot."""
        self._guard = (self._source / GUARD).read_bytes()

    def finish(self) -> None:
        """Bring the copy up to date, after a round's snapshot."""
        found = read_keys(self._source)
        # root.sealed last: at the end of a rotation the new master key is in place before
        # root.sealed drops the old one, so a crash leaves a copy that its key opens.
        for name in sorted(found, key=lambda name: (name == ROOT, name)):
            self._write(name, found[name])
        self._write(GUARD, self._guard)
        self._write(JOURNAL, (self._source / JOURNAL).read_bytes())
        for name in self.folder.names():
            if name not in (*found, GUARD, JOURNAL, MARK):
                self.folder.unlink(name)
        self.folder.sync()

    def _write(self, name: str, data: bytes) -> None:
        try:
            with self.folder.open(name) as file:
                held = file.read(len(data) + 1)
        except FileNotFoundError:  # also raised for a link, which is then replaced
            held = None
        if held != data:
            self.folder.write_durably(name, data)
