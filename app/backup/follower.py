"""Follows a SQLite database: another directory has each commit a few seconds later.

Each round copies the database in one snapshot and writes those pieces of the copy that the
directory lacks (`app.backup.pieces`). A round without new commits only reads a version number
and the names in the directory; missing files are written again. Only the last state is kept:
erased data leaves the directory with the next round.

The write-ahead log is not shipped: an erasure must be able to truncate it (`app.vault.scrub`).
"""

import fcntl
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from sqlalchemy import Connection, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from app.backup.archive import ARTIFACTS, MANIFEST, copy_artifact, has_digest
from app.backup.beats import Beat, write_beat
from app.backup.errors import BackupError
from app.backup.folder import Folder, open_folder
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
from app.backup.scratch import remove_leftovers, scratch_place
from app.ledger import storage
from app.ledger.guard import SigningGuard, require_extends
from app.ledger.startup import GUARD, SchemaError, require_schema
from app.ledger.storage import NodeTable
from app.settings import Settings
from app.steps import reached
from lethe.canonical import format_base64
from lethe.files import PARTIAL
from lethe.log.checkpoint import Checkpoint
from migrations import HEAD
from models.database.session import reading
from models.database.types import utcnow

AT_ONCE = 256  # new pieces in memory, 16 MiB
# The form of names that a follower writes: files with other names are never removed.
_PIECE = re.compile(r"[0-9a-f]{64}")
_ARTIFACT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Round:
    """The bytes that a round wrote, and the directory's new state."""

    state: Followed
    written: int


@contextmanager
def following(
    settings: Settings, engine: Engine, directory: Path, keys: Path | None = None
) -> Iterator["DatabaseFollower"]:
    """Yield the follower into `directory`, which is new or was followed into before.

    keys: the directory to copy the keys to, if any.

    Raises BackupError: the database is PostgreSQL, or the directory has other files;
    SchemaError: the database is not migrated.
    """
    if engine.dialect.name != "sqlite":
        raise BackupError(
            "the database is PostgreSQL, which is followed by its own means: set archive_mode "
            "and archive_command (docs/backup.md, Recover PostgreSQL to a moment)"
        )
    require_schema(engine)
    remove_leftovers(settings.data_dir)
    with ExitStack() as held:
        with _named_errors(directory):
            folder = held.enter_context(open_folder(directory))
            _require_own(folder, settings.origin)
            copied = None
            if keys is not None:
                copied = KeysCopy(settings.keys_dir, keys)
                held.callback(copied.close)
            for place in (folder, *([] if copied is None else [copied.folder])):
                if not held.enter_context(locked(place, LOCK, fcntl.LOCK_EX)):
                    raise BackupError(f"another process follows into {place}: end it first")
            connection = held.enter_context(reading(engine).connect())
            follower = DatabaseFollower(settings, connection, folder, copied)
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
        As `following` and `DatabaseFollower.run`; the process supervisor restarts the command.
    """
    with following(settings, engine, directory, keys) as follower:
        while True:
            begun, at = time.monotonic(), utcnow()
            if (done := follower.run()) is not None:
                on_round(done)
            write_beat(settings, Beat(str(directory.absolute()), at.isoformat(), every))
            time.sleep(max(0.0, begun + every - time.monotonic()))


class DatabaseFollower:
    """Follows one database into one directory. `following` ensures that it is the only one.

    The directory is held open, and each round opens the folders in it again.
    """

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        directory: Folder,
        keys: KeysCopy | None = None,
    ) -> None:
        self._settings, self.connection, self.folder = settings, connection, directory
        self._keys = keys
        self._inode = _inode(connection)
        names = directory.names()
        with self._folders(new=True) as (pieces, artifacts):
            # Read existing pieces once: a corrupted piece is written again.
            self._pieces = {
                one for one in pieces.names() if read_piece(pieces, one) is not None
            }
            state = read_followed(directory) if MANIFEST in names else None
            self._files = {} if state is None else _intact(artifacts, state.files)
        self._seen: tuple[int, frozenset[str], Signature] | None = None
        self._spare = True  # the directory may have files that the manifest does not name

    def run(self) -> Round | None:
        """Bring the directory up to date; return None if nothing was committed since.

        Raises:
            GuardError: The log is not the signed one; it is not copied.
            SchemaError: The database was migrated.
            BackupError: A disk is full or missing, or the database is unreadable; the last
                state remains.
        """
        with _named_errors(self.folder.path):
            at = utcnow()
            self._require_same()
            with self._folders() as (pieces, artifacts):
                return self._run(at, pieces, artifacts)

    @contextmanager
    def _folders(self, *, new: bool = False) -> Iterator[tuple[Folder, Folder]]:
        """Open the folders of pieces and artifacts. new: create them if missing."""
        with (
            self.folder.inside(PIECES, new=new) as pieces,
            self.folder.inside(ARTIFACTS, new=new) as artifacts,
        ):
            yield pieces, artifacts

    def _run(self, at: datetime, pieces: Folder, artifacts: Folder) -> Round | None:
        self._forget_missing(pieces, artifacts)
        held = SigningGuard(self._settings.keys_dir / GUARD).read()
        if self._keys is not None:
            self._keys.begin()
        with ExitStack() as stack:
            with self.connection.begin():
                keys = () if self._keys is None else self._keys.signature()
                seen = self._version(), frozenset(self._stored()), keys
                if seen == self._seen:
                    self._prune(pieces, artifacts)
                    return None
                size, root = self._log(held)
                place = stack.enter_context(scratch_place(self._settings.data_dir, "follow"))
                copy = self._take_copy(place)
            reached("follow.copied")
            names, written = self._write_pieces(pieces, copy)
        files = self._write_artifacts(artifacts)
        if self._keys is not None:
            self._keys.finish()
        reached("follow.written")
        state = Followed(
            at=at.isoformat(),
            files=files,
            origin=self._settings.origin,
            pieces=names,
            root=format_base64(root),
            schema=HEAD,
            size=size,
        )
        write_followed(self.folder, state)
        reached("follow.committed")
        self._pieces, self._files = set(names), files
        self._seen, self._spare = seen, True
        self._prune(pieces, artifacts)
        return Round(state, written)

    def _require_same(self) -> None:
        """Check that the database's file was not exchanged and the directories still exist."""
        if _inode(self.connection) != self._inode:
            raise BackupError(
                "the database's file was exchanged: start lethe backup follow again"
            )
        for folder in (self.folder, *([] if self._keys is None else [self._keys.folder])):
            if not folder.is_at(folder.path):
                raise BackupError(f"{folder} is gone: mount its disk, and start again")

    def _forget_missing(self, pieces: Folder, artifacts: Folder) -> None:
        """Have this round rewrite files that are missing from the directory."""
        left, files = set(pieces.names()), set(artifacts.names())
        whole = {
            name: digest for name, digest in self._files.items() if Path(name).name in files
        }
        if (
            not self._pieces <= left
            or len(whole) < len(self._files)
            or MANIFEST not in self.folder.names()
        ):
            self._seen = None
        self._pieces &= left
        self._files = whole

    def _version(self) -> int:
        """Return a number that changes with every commit of another connection."""
        return int(self.connection.exec_driver_sql("PRAGMA data_version").scalar_one())

    def _stored(self) -> list[str]:
        source = self._settings.data_dir / ARTIFACTS
        names = [path.name for path in source.iterdir()] if source.is_dir() else []
        return sorted(name for name in names if _ARTIFACT.fullmatch(name))

    def _log(self, held: Checkpoint) -> tuple[int, bytes]:
        query = text("SELECT version_num FROM alembic_version")
        if self.connection.execute(query).scalar_one_or_none() != HEAD:
            raise SchemaError(
                "the database was migrated: follow it with the version of Lethe that migrated "
                "it"
            )
        with Session(self.connection) as session:
            size, nodes = storage.read_size(session), NodeTable(session)
            require_extends(held, self._settings.origin, size, nodes.root_at)
            return size, nodes.root_at(size)

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

    def _write_artifacts(self, folder: Folder) -> dict[str, str]:
        """Copy missing artifacts, which never change; return all digests."""
        files = {}
        for one in self._stored():
            name = f"{ARTIFACTS}/{one}"
            digest = self._files.get(name)
            if digest is None:
                digest = copy_artifact(self._settings.data_dir / name, folder)
            if digest is not None:
                files[name] = digest
        return files

    def _prune(self, pieces: Folder, artifacts: Folder) -> None:
        """Remove files that the manifest does not name, unless a restore is reading them."""
        if not self._spare:
            return
        with locked(self.folder, READERS, fcntl.LOCK_EX) as free:
            if not free:
                return
            kept = {Path(name).name for name in self._files}
            _remove_others(pieces, _PIECE, self._pieces)
            _remove_others(artifacts, _ARTIFACT, kept)
            _remove_others(self.folder, None, set())
        self._spare = False


def _remove_others(folder: Folder, form: re.Pattern[str] | None, kept: Collection[str]) -> None:
    """Remove files with names of this form that are not in `kept`, and unfinished files."""
    for name in folder.names():
        own = form is not None and form.fullmatch(name) and name not in kept
        if own or name.startswith(PARTIAL):
            folder.unlink(name)
    folder.sync()


@contextmanager
def _named_errors(directory: Path) -> Iterator[None]:
    """Turn errors of the disk or the database into a BackupError that names it."""
    try:
        yield
    except OSError as error:
        place = error.filename or directory
        raise BackupError(f"{place}: {error.strerror}: the previous state was kept") from None
    except (DBAPIError, sqlite3.Error) as error:
        raise BackupError(
            f"the database cannot be read ({type(error).__name__}): run lethe doctor"
        ) from None


def _inode(connection: Connection) -> tuple[int, int]:
    path = connection.engine.url.database
    assert path is not None  # a SQLite file
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def _require_own(directory: Folder, origin: str) -> None:
    names = directory.names()
    if MANIFEST in names:
        state = read_followed(directory)
        if state is None:
            raise BackupError(f"{directory} is a backup of one moment: give another directory")
        if state.origin != origin:
            raise BackupError(f"{directory} follows the log {state.origin}: give another one")
    elif names and LOCK not in names:
        raise BackupError(f"{directory} has other files: give a new or an empty directory")


def _intact(artifacts: Folder, files: dict[str, str]) -> dict[str, str]:
    """Return the files whose digest matches the manifest."""
    return {
        name: digest
        for name, digest in files.items()
        if has_digest(artifacts, Path(name).name, digest)
    }
