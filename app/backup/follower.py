"""Follows an installation: another directory has each commit a few seconds later.

Each round copies a SQLite database in one snapshot and writes those pieces of the copy that the
directory lacks (`app.backup.pieces`). A round without new commits only reads a version number
and the names in the directory; missing files are written again. Only the last state is kept:
erased data leaves the directory with the next round.

The write-ahead log is not shipped: an erasure must be able to truncate it (`app.vault.scrub`).
Beside PostgreSQL, whose archive has the rows, the files are followed
(`app.backup.files_follower`).
"""

import fcntl
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from sqlalchemy import Connection
from sqlalchemy.engine import Engine

from app.backup.archive import ARTIFACTS, REMOVED, TRIES, is_any_lost
from app.backup.beats import Beat, write_beat
from app.backup.errors import BackupError
from app.backup.files_follower import FilesFollower
from app.backup.folder import Folder, open_folder
from app.backup.keys import KeysCopy
from app.backup.pieces import LOCK, PIECE, locked
from app.backup.round import BaseFollower, Round, named_errors, require_own
from app.backup.scratch import remove_leftovers, scratch_place
from app.ledger.startup import require_schema
from app.settings import Settings
from app.steps import reached
from lethe.log.checkpoint import Checkpoint
from models.database.session import reading
from models.database.types import utcnow

AT_ONCE = 256  # new pieces in memory, 16 MiB


@contextmanager
def following(
    settings: Settings, engine: Engine, directory: Path, keys: Path | None = None
) -> Iterator[BaseFollower]:
    """Yield the follower into `directory`, which is new or was followed into before.

    keys: the directory to copy the keys to, if any.

    Raises BackupError: the directory has other files; SchemaError: the database is not
    migrated.
    """
    make = DatabaseFollower if engine.dialect.name == "sqlite" else FilesFollower
    require_schema(engine)
    remove_leftovers(settings.data_dir)
    with ExitStack() as held:
        with named_errors(directory):
            folder = held.enter_context(open_folder(directory))
            require_own(folder, settings.origin, archived=make.archived)
            copied = None
            if keys is not None:
                copied = KeysCopy(settings.keys_dir, keys)
                held.callback(copied.close)
            for place in (folder, *([] if copied is None else [copied.folder])):
                if not held.enter_context(locked(place, LOCK, fcntl.LOCK_EX)):
                    raise BackupError(f"another process follows into {place}: end it first")
            connection = held.enter_context(reading(engine).connect())
            follower = make(settings, connection, folder, copied)
        yield follower


def follow(
    settings: Settings,
    engine: Engine,
    directory: Path,
    every: float,
    on_round: Callable[[Round], None],
    keys: Path | None = None,
) -> NoReturn:
    """Begin a round every `every` seconds until the process ends; `on_round` gets each round.

    At most the commits of the last `every` seconds plus the time of a copy can be lost.
    `app.backup.beats` records the start of the last round.

    Raises:
        As `following` and `BaseFollower.run`; the process supervisor restarts the command.
    """
    with following(settings, engine, directory, keys) as follower:
        while True:
            begun, at = time.monotonic(), utcnow()
            if (done := follower.run()) is not None:
                on_round(done)
            write_beat(settings, Beat(str(directory.absolute()), at.isoformat(), every))
            time.sleep(max(0.0, begun + every - time.monotonic()))


class DatabaseFollower(BaseFollower):
    """Follows a SQLite database and the files beside it."""

    archived = False

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        directory: Folder,
        keys: KeysCopy | None = None,
    ) -> None:
        super().__init__(settings, connection, directory, keys)
        self._inode = _inode(connection)

    def _run(
        self, at: datetime, held: Checkpoint, pieces: Folder, artifacts: Folder
    ) -> Round | None:
        source = self._settings.data_dir / ARTIFACTS
        for _ in range(TRIES):
            before = self._stored()
            self._files |= self._write_artifacts(artifacts, before)  # without a snapshot
            with ExitStack() as stack:
                with self.connection.begin():
                    seen = self._now(before)
                    if seen == self._seen:
                        self._prune(pieces, artifacts)
                        return None
                    log = self._log(held)
                    stored = sorted({*before, *self._stored()})
                    files = self._write_artifacts(artifacts, stored)
                    if is_any_lost(source, stored, files):
                        continue  # the snapshot's rows may name it
                    place = stack.enter_context(
                        scratch_place(self._settings.data_dir, "follow")
                    )
                    copy = self._take_copy(place)
                reached("follow.copied")
                names, written = self._write_pieces(pieces, copy)
            state = self._finish(at, seen, log, files, names)
            self._prune(pieces, artifacts)
            return Round(state, written)
        raise BackupError(REMOVED)

    def _require_same(self) -> None:
        """Check also that the database's file was not exchanged."""
        if _inode(self.connection) != self._inode:
            raise BackupError(
                "the database's file was exchanged: start lethe backup follow again"
            )
        super()._require_same()

    def _version(self) -> int:
        return int(self.connection.exec_driver_sql("PRAGMA data_version").scalar_one())

    def _take_copy(self, place: Path) -> Path:
        """Copy the connection's snapshot; return the copy's path."""
        source = self.connection.connection.driver_connection
        assert isinstance(source, sqlite3.Connection)
        copy = place / "whole.db"
        copy.touch(mode=0o600)
        with closing(sqlite3.connect(copy)) as target:
            for pragma in ("journal_mode=OFF", "synchronous=OFF"):  # no crash safety needed
                target.execute(f"PRAGMA {pragma}")
            source.backup(target)
        return copy

    def _write_pieces(self, folder: Folder, copy: Path) -> tuple[list[str], int]:
        """Write the copy's missing pieces; return all names, and the bytes written."""
        pieces, written, new = list[str](), 0, dict[str, bytes]()
        with copy.open("rb") as file:
            while piece := file.read(PIECE):
                name = sha256(piece).hexdigest()
                pieces.append(name)
                if name not in self._pieces and name not in new:
                    new[name] = piece
                    written += len(piece)
                if len(new) == AT_ONCE:
                    self._write(folder, new)
        self._write(folder, new)
        return pieces, written

    def _write(self, folder: Folder, new: dict[str, bytes]) -> None:
        if new:
            folder.write_all_durably(new)
            self._pieces |= new.keys()
            self._spare = True
            new.clear()


def _inode(connection: Connection) -> tuple[int, int]:
    path = connection.engine.url.database
    assert path is not None  # a SQLite file
    found = Path(path).stat()
    return found.st_dev, found.st_ino
