"""Copies of the keys directory: that of a backup, and one that a follower renews each round.

Keys may be rotated meanwhile, so all of them are read as they were at one moment. The guard is
taken before the database's snapshot, which then has all that the copy says was signed, and the
erasure journal after it.

Of a follower's copy each file is replaced at once: a crash leaves some files of a round and
some of the one before. A restore with copied keys asks a mirror what was signed since in any
case.
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

MARK = "follower.lock"  # of a directory that `lethe backup follow` may write to

TRIES = 50  # reads of the keys, over 5 s

Signature = tuple[tuple[str, int, int, int], ...]  # name, number, size and time of each file


def copy_guard(source: Path, target: Folder) -> None:
    """Copy the guard into a new directory, before the database's snapshot is taken."""
    target.write_durably(GUARD, (source / GUARD).read_bytes())


def copy_keys(source: Path, target: Folder) -> None:
    """Copy the other keys there, and the journal last, after the snapshot.

    Raises:
        BackupError: As `read_keys`.
    """
    target.write_all_durably(read_keys(source))
    with suppress(FileNotFoundError):
        target.write_durably(JOURNAL, (source / JOURNAL).read_bytes())


def read_keys(source: Path) -> dict[str, bytes]:
    """Return what the files but the guard and the journal had at one moment, by name.

    A rotation that ends moves a key into the place of another: whoever reads one file after the
    other may find the old key in its place and the new one nowhere. So all are read again
    until none has changed meanwhile.

    Raises:
        BackupError: They change all the time.
    """
    for _ in range(TRIES):
        with suppress(FileNotFoundError):  # a rotation has removed it meanwhile
            before = _signature(_keys(source))
            found = {path.name: path.read_bytes() for path in _keys(source)}
            if _signature(_keys(source)) == before:
                return found
        time.sleep(0.1)
    raise BackupError(
        f"{source} changes all the time: wait until no key is rotated, and run this again"
    )


def _files(source: Path) -> list[Path]:
    files = sorted(path for path in source.iterdir() if path.is_file())
    # A file that a crash left unfinished may be opened by a key that was revoked since.
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

        Raises:
            BackupError: Something else is there.
        """
        self._source, self._guard = source, b""
        with ExitStack() as held:
            # Held open: whoever writes the copy alone cannot lead what is written elsewhere.
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
        """Return what changes when a key file does."""
        return _signature(_files(self._source))

    def begin(self) -> None:
        """Take the guard, before the snapshot of a round."""
        self._guard = (self._source / GUARD).read_bytes()

    def finish(self) -> None:
        """Bring the copy up to the keys, after the snapshot of a round."""
        found = read_keys(self._source)
        # At the end of a rotation the new master key is in its place before root.sealed is for
        # that alone: what a crash leaves of the copy is opened by its key.
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
        except FileNotFoundError:  # or it is a link, which is replaced
            held = None
        if held != data:
            self.folder.write_durably(name, data)
