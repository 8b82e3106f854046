"""A follower: each round brings a directory up to the state of an installation.

What is common to `app.backup.follower`, which follows a SQLite database, and to
`app.backup.files_follower`, which follows the files beside PostgreSQL.
"""

import fcntl
import os
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from app.backup.archive import ARTIFACTS, MANIFEST, copy_artifact, has_digest
from app.backup.errors import BackupError
from app.backup.folder import Folder
from app.backup.keys import KeysCopy, Signature
from app.backup.pieces import (
    LOCK,
    PIECE_NAME,
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
from app.ledger.startup import GUARD, SchemaError
from app.ledger.storage import NodeTable
from app.settings import Settings
from app.steps import reached
from lethe.canonical import format_base64
from lethe.files import PARTIAL
from lethe.log.checkpoint import Checkpoint
from migrations import HEAD
from models.database.types import utcnow

# The form of names that a follower writes: files with other names are never removed.
_ARTIFACT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Seen = tuple[int, frozenset[str], Signature]


@dataclass(frozen=True, slots=True)
class Round:
    """The bytes of the database that a round wrote, and the directory's new state."""

    state: Followed
    written: int


class BaseFollower:
    """Follows one installation into one directory. `following` ensures that it is the only one.

    The directory is held open, and each round opens the folders in it again.
    """

    archived: ClassVar[bool]  # as of `Followed`

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        directory: Folder,
        keys: KeysCopy | None = None,
    ) -> None:
        self._settings, self.connection, self.folder = settings, connection, directory
        self._keys = keys
        names = directory.names()
        with self._folders(new=True) as (pieces, artifacts):
            # Read existing pieces once: a corrupted piece is written again.
            self._pieces = {
                one for one in pieces.names() if read_piece(pieces, one) is not None
            }
            state = read_followed(directory) if MANIFEST in names else None
            self._files = (
                {}
                if state is None
                else _intact(artifacts, state.files, settings.data_dir / ARTIFACTS)
            )
        self._seen: Seen | None = None
        self._spare = True  # the directory may have files that the manifest does not name

    def run(self) -> Round | None:
        """Bring the directory up to date; return None if nothing was committed since.

        Raises:
            GuardError: The log is not the signed one; it is not copied.
            SchemaError: The database was migrated.
            BackupError: A disk is full or missing, or the database is unreadable; the last
                state remains.
        """
        with named_errors(self.folder.path):
            at = utcnow()
            self._require_same()
            with self._folders() as (pieces, artifacts):
                self._forget_missing(pieces, artifacts)
                held = SigningGuard(self._settings.keys_dir / GUARD).read()
                if self._keys is not None:
                    self._keys.begin()
                return self._run(at, held, pieces, artifacts)

    def _run(
        self, at: datetime, held: Checkpoint, pieces: Folder, artifacts: Folder
    ) -> Round | None:
        """Do a round that began at `at`. held: the guard's checkpoint, read before it."""
        raise NotImplementedError

    def _version(self) -> int:
        """Return a number that changes with every commit of another connection."""
        raise NotImplementedError

    @contextmanager
    def _folders(self, *, new: bool = False) -> Iterator[tuple[Folder, Folder]]:
        """Open the folders of pieces and artifacts. new: create them if missing."""
        with (
            self.folder.inside(PIECES, new=new) as pieces,
            self.folder.inside(ARTIFACTS, new=new) as artifacts,
        ):
            yield pieces, artifacts

    def _require_same(self) -> None:
        """Check that the directories still exist."""
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

    def _now(self, names: Iterable[str]) -> Seen:
        """Return a value that changes with each commit, file and key. names: of the files."""
        keys = () if self._keys is None else self._keys.signature()
        return self._version(), frozenset(names), keys

    def _finish(
        self,
        at: datetime,
        seen: Seen,
        log: tuple[int, bytes],
        files: dict[str, str],
        names: list[str],
    ) -> Followed:
        """Renew the keys and then the manifest. names: of the database's pieces."""
        if self._keys is not None:
            self._keys.finish()
        reached("follow.written")
        size, root = log
        state = Followed(
            at=at.isoformat(),
            files=files,
            origin=self._settings.origin,
            pieces=names,
            root=format_base64(root),
            schema=HEAD,
            size=size,
            archived=self.archived,
        )
        write_followed(self.folder, state)
        reached("follow.committed")
        self._pieces, self._files = set(names), files
        self._seen, self._spare = seen, True
        return state

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

    def _write_artifacts(self, folder: Folder, names: Iterable[str]) -> dict[str, str]:
        """Copy missing artifacts, which never change; return the digests of those copied."""
        files = {}
        for one in names:
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
            _remove_others(pieces, PIECE_NAME, self._pieces)
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
def named_errors(directory: Path) -> Iterator[None]:
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


def require_own(directory: Folder, origin: str, *, archived: bool) -> None:
    """Check that a directory is new, or was followed into for this log and this database."""
    names = directory.names()
    if MANIFEST in names:
        state = read_followed(directory)
        if state is None:
            raise BackupError(
                f"{directory} holds a backup of `lethe backup new`, which cannot be "
                "followed into: give another directory"
            )
        if state.archived != archived:
            raise BackupError(
                f"{directory} has followed a database of the other kind, SQLite or "
                "PostgreSQL: give another directory"
            )
        if state.origin != origin:
            raise BackupError(
                f"{directory} has followed the log {state.origin}: give another directory"
            )
    elif names and LOCK not in names:
        raise BackupError(f"{directory} has other files: give a new or an empty directory")


def _intact(artifacts: Folder, files: dict[str, str], source: Path) -> dict[str, str]:
    """Return the files of which the directory has a copy: of the same size and digest.

    The size first: a sparse file of terabytes would take days to hash.
    """
    found = {}
    for name, digest in files.items():
        own = Path(name).name
        with suppress(OSError):
            with artifacts.open(own) as file:
                same = os.fstat(file.fileno()).st_size == (source / own).stat().st_size
            if same and has_digest(artifacts, own, digest):
                found[name] = digest
    return found
