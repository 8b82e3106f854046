"""Follows a SQLite database: what was committed is in another directory a few seconds later.

Each round copies the database in one snapshot, and writes those pieces of the copy that the
directory lacks (`app.backup.pieces`). A round in which nothing was committed reads one number.
Only the last state is kept: what is erased leaves the directory with the next round.

The write-ahead log is not shipped: an erasure must be able to cut it (`app.vault.scrub`).
"""

import fcntl
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from sqlalchemy import Connection, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from app.backup.archive import ARTIFACTS, MANIFEST, BackupError, digest_of, open_artifact
from app.backup.beats import Beat, scratch_of, write_beat
from app.backup.keys import KeysCopy, Signature
from app.backup.pieces import (
    LOCK,
    PIECE,
    PIECES,
    READERS,
    Followed,
    locked,
    read_followed,
    read_piece,
    write_followed,
)
from app.ledger import storage
from app.ledger.guard import SigningGuard, require_extends
from app.ledger.startup import GUARD, SchemaError, require_schema
from app.ledger.storage import NodeTable
from app.settings import Settings
from app.steps import reached
from lethe.files import PARTIAL, open_durably, sync_directory, write_all_durably
from lethe.log.checkpoint import Checkpoint
from lethe.log.spelling import format_base64
from migrations import HEAD
from models.database.session import reading
from models.database.types import utcnow

AT_ONCE = 256  # new pieces in memory, 16 MiB


@dataclass(frozen=True, slots=True)
class Round:
    """What one round wrote, in bytes, and the state that the directory has since."""

    state: Followed
    written: int


@contextmanager
def following(
    settings: Settings, engine: Engine, directory: Path, keys: Path | None = None
) -> Iterator["DatabaseFollower"]:
    """Yield what brings `directory` up to the database; it is new, or was followed into before.

    keys: where the keys are copied to, if they are.

    Raises:
        BackupError: The database is PostgreSQL, or something else is in the directory.
        SchemaError: The database is not migrated.
    """
    if engine.dialect.name != "sqlite":
        raise BackupError(
            "the database is PostgreSQL, which is followed by its own means: set archive_mode "
            "and archive_command (operator guide, Recover PostgreSQL to a moment)"
        )
    require_schema(engine)
    with ExitStack() as held:
        with _told(directory):
            _require_own(directory, settings.origin)
            copy = None if keys is None else KeysCopy(settings.keys_dir, keys)
            for lock in (directory / LOCK, *([] if copy is None else [copy.lock])):
                if not held.enter_context(locked(lock, fcntl.LOCK_EX)):
                    raise BackupError(
                        f"another process follows into {lock.parent}: end it first"
                    )
            connection = held.enter_context(reading(engine).connect())
            follower = DatabaseFollower(settings, connection, directory, copy)
        yield follower


def follow(
    settings: Settings,
    engine: Engine,
    directory: Path,
    every: float,
    told: Callable[[Round], None],
    keys: Path | None = None,
) -> NoReturn:
    """Begin a round each `every` seconds, until the process ends; told: what a round wrote.

    What was committed a round before is in `directory`: a loss of `every` and the time of a
    copy, at most. `app.backup.beats` has when the last round began.

    Raises:
        As `following` and `DatabaseFollower.run`: whatever runs this starts it again.
    """
    with following(settings, engine, directory, keys) as follower:
        while True:
            begun, at = time.monotonic(), utcnow()
            if (done := follower.run()) is not None:
                told(done)
            write_beat(settings, Beat(str(directory.absolute()), at.isoformat(), every))
            time.sleep(max(0.0, begun + every - time.monotonic()))


class DatabaseFollower:
    """One directory that follows one database. Only one at a time: see `following`."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        directory: Path,
        keys: KeysCopy | None = None,
    ) -> None:
        self._settings, self._connection, self._directory = settings, connection, directory
        self._keys = keys
        self._inode = _inode(connection)
        self._copy = scratch_of(settings, directory)
        self._copy.parent.mkdir(mode=0o700, exist_ok=True)
        self._copy.unlink(missing_ok=True)  # of a follower that was killed
        for name in (PIECES, ARTIFACTS):
            (directory / name).mkdir(mode=0o700, exist_ok=True)
        # What is there is read once: a piece that rotted is written again.
        names = [path.name for path in (directory / PIECES).iterdir()]
        self._pieces = {one for one in names if read_piece(directory, one) is not None}
        state = read_followed(directory) if (directory / MANIFEST).exists() else None
        self._files = {} if state is None else _intact(directory, state.files)
        self._seen: tuple[int, frozenset[str], Signature] | None = None
        self._spare = True  # there may be files that the manifest does not name

    def run(self) -> Round | None:
        """Bring the directory up to the database; None if nothing was committed since.

        Raises:
            GuardError: The log is not the one that was signed: it is not taken over.
            SchemaError: The database was migrated.
            BackupError: A disk is full or away, or the database is; the state is the last one.
        """
        with _told(self._directory):
            return self._run()

    def _run(self) -> Round | None:
        at = utcnow()
        self._require_same()
        held = SigningGuard(self._settings.keys_dir / GUARD).read()
        if self._keys is not None:
            self._keys.begin()
        try:
            with self._connection.begin():
                keys = () if self._keys is None else self._keys.signature()
                seen = self._version(), frozenset(self._stored()), keys
                if seen == self._seen:
                    self._prune()
                    return None
                size, root = self._log(held)
                self._take_copy()
            reached("follow.copied")
            pieces, written = self._write_pieces()
        finally:
            self._copy.unlink(missing_ok=True)
        files = self._write_artifacts()
        if self._keys is not None:
            self._keys.finish()
        reached("follow.written")
        state = Followed(
            at=at.isoformat(),
            files=files,
            origin=self._settings.origin,
            pieces=pieces,
            root=format_base64(root),
            schema=HEAD,
            size=size,
        )
        write_followed(self._directory, state)
        reached("follow.committed")
        self._pieces, self._files = set(pieces), files
        self._seen, self._spare = seen, True
        self._prune()
        return Round(state, written)

    def _require_same(self) -> None:
        """Return if the database is the file that was opened, and the directory is not away."""
        if _inode(self._connection) != self._inode:
            raise BackupError(
                "the database's file was exchanged: start lethe backup follow again"
            )
        written = [] if self._seen is None else [self._directory / MANIFEST]
        for path in (*written, *([] if self._keys is None else [self._keys.lock])):
            if not path.exists():
                raise BackupError(f"{path} is gone: mount its disk, and start again")

    def _version(self) -> int:
        """Return a number that changes with each commit of another connection."""
        return int(self._connection.exec_driver_sql("PRAGMA data_version").scalar_one())

    def _stored(self) -> list[str]:
        source = self._settings.data_dir / ARTIFACTS
        names = [path.name for path in source.iterdir()] if source.is_dir() else []
        return sorted(name for name in names if not name.startswith(PARTIAL))

    def _log(self, held: Checkpoint) -> tuple[int, bytes]:
        query = text("SELECT version_num FROM alembic_version")
        if self._connection.execute(query).scalar_one_or_none() != HEAD:
            raise SchemaError("the database was migrated: follow it with the Lethe that did it")
        with Session(self._connection) as session:
            size, nodes = storage.read_size(session), NodeTable(session)
            require_extends(held, self._settings.origin, size, nodes.root_at)
            return size, nodes.root_at(size)

    def _take_copy(self) -> None:
        """Copy the snapshot that the connection has."""
        source = self._connection.connection.driver_connection
        assert isinstance(source, sqlite3.Connection)
        self._copy.touch(mode=0o600)
        with closing(sqlite3.connect(self._copy)) as target:
            for pragma in ("journal_mode=OFF", "synchronous=OFF"):  # a killed copy is removed
                target.execute(f"PRAGMA {pragma}")
            source.backup(target)

    def _write_pieces(self) -> tuple[list[str], int]:
        """Write those pieces of the copy that are not there; return all, and the bytes."""
        pieces, written, new = list[str](), 0, dict[str, bytes]()
        with self._copy.open("rb") as file:
            while piece := file.read(PIECE):
                name = sha256(piece).hexdigest()
                pieces.append(name)
                if name not in self._pieces and name not in new:
                    new[name] = piece
                    written += len(piece)
                if len(new) == AT_ONCE:
                    self._write(new)
        self._write(new)
        return pieces, written

    def _write(self, new: dict[str, bytes]) -> None:
        if new:
            write_all_durably(self._directory / PIECES, new)
            self._pieces |= new.keys()
            self._spare = True
            new.clear()

    def _write_artifacts(self) -> dict[str, str]:
        """Copy the artifacts that are not there, which never change; return all digests."""
        files = {}
        for one in self._stored():
            name = f"{ARTIFACTS}/{one}"
            digest = self._files.get(name)
            if digest is None:
                digest = _copy(self._settings.data_dir / name, self._directory / name)
            if digest is not None:
                files[name] = digest
        return files

    def _prune(self) -> None:
        """Remove what the manifest does not name, unless somebody restores from it."""
        if not self._spare:
            return
        with locked(self._directory / READERS, fcntl.LOCK_EX) as free:
            if not free:
                return
            for folder, kept in (
                (PIECES, self._pieces),
                (ARTIFACTS, {Path(name).name for name in self._files}),
            ):
                for path in (self._directory / folder).iterdir():
                    if path.name not in kept:
                        path.unlink()
                sync_directory(self._directory / folder)
            for path in self._directory.glob(f"{PARTIAL}*"):
                path.unlink()
        self._spare = False


@contextmanager
def _told(directory: Path) -> Iterator[None]:
    """Name the disk or the database in the error, if one of them ends the block."""
    try:
        yield
    except OSError as error:
        place = error.filename or directory
        raise BackupError(f"{place}: {error.strerror}: the state is that of before") from None
    except (DBAPIError, sqlite3.Error) as error:
        raise BackupError(
            f"the database cannot be read ({type(error).__name__}): run lethe doctor"
        ) from None


def _inode(connection: Connection) -> tuple[int, int]:
    path = connection.engine.url.database
    assert path is not None  # a SQLite file
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def _require_own(directory: Path, origin: str) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (directory / MANIFEST).exists():
        state = read_followed(directory)
        if state is None:
            raise BackupError(f"{directory} is a backup of one moment: give another directory")
        if state.origin != origin:
            raise BackupError(f"{directory} follows the log {state.origin}: give another one")
    elif not (directory / LOCK).exists() and any(directory.iterdir()):
        raise BackupError(f"{directory} has other files: give a new or an empty directory")


def _intact(directory: Path, files: dict[str, str]) -> dict[str, str]:
    """Return those files that are what the manifest says."""
    there = {name: directory / name for name in files if (directory / name).is_file()}
    return {name: files[name] for name, path in there.items() if digest_of(path) == files[name]}


def _copy(source: Path, target: Path) -> str | None:
    """Copy a file durably and return its digest; None if it is gone, as a shredded one is."""
    try:
        opened = open_artifact(source)
    except FileNotFoundError:
        return None
    with opened, open_durably(target) as file:
        shutil.copyfileobj(opened, file)
    return digest_of(target)
