"""A copy of the keys directory that a follower renews with each round.

The guard is taken before the database's snapshot, which then has all that the copy says was
signed, and the erasure journal after it. Each file is replaced at once: a crash leaves some
files of a round and some of the one before. A restore with copied keys asks a mirror what was
signed since in any case.
"""

import os
from contextlib import ExitStack, suppress
from pathlib import Path

from app.backup.errors import BackupError
from app.backup.folder import open_folder
from app.ledger.startup import GUARD
from app.vault.journal import FILE as JOURNAL
from app.vault.root import FILE as ROOT
from lethe.files import PARTIAL

MARK = "follower.lock"  # of a directory that `lethe backup follow` may write to

Signature = tuple[tuple[str, int, int], ...]  # name, size and time of each file


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
        found = ((path.name, path.stat()) for path in self._files())
        return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)

    def begin(self) -> None:
        """Take the guard, before the snapshot of a round."""
        self._guard = (self._source / GUARD).read_bytes()

    def finish(self) -> None:
        """Bring the copy up to the keys, after the snapshot of a round."""
        # At the end of a rotation the new master key is in its place before root.sealed is for
        # that alone: what is read, and what a crash leaves of the copy, is opened by its key.
        found: dict[str, bytes] = {}
        for path in sorted(self._files(), key=lambda path: (path.name != ROOT, path.name)):
            if path.name not in (GUARD, JOURNAL):
                with suppress(FileNotFoundError):  # a rotation has removed it meanwhile
                    found[path.name] = path.read_bytes()
        for name in sorted(found, key=lambda name: (name == ROOT, name)):
            self._write(name, found[name])
        self._write(GUARD, self._guard)
        self._write(JOURNAL, (self._source / JOURNAL).read_bytes())
        for name in self.folder.names():
            if name not in (*found, GUARD, JOURNAL, MARK):
                self.folder.unlink(name)
        self.folder.sync()

    def _files(self) -> list[Path]:
        files = sorted(path for path in self._source.iterdir() if path.is_file())
        return [path for path in files if not path.name.startswith(PARTIAL)]

    def _write(self, name: str, data: bytes) -> None:
        try:
            with self.folder.open(name) as file:
                held = file.read(len(data) + 1)
        except FileNotFoundError:  # or it is a link, which is replaced
            held = None
        if held != data:
            self.folder.write_durably(name, data)
