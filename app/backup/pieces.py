"""A backup that is renewed every few seconds: the database in pieces named by their content.

    pieces/DIGEST    64 KiB of a SQLite file each; what did not change is not written again
    artifacts/       as in a backup
    manifest.json    replaced last, at once: the pieces in their order, each file's digest
    follower.lock    held by the one process that writes here
    readers.lock     held by whoever restores: nothing is removed meanwhile

What the manifest names is durable before it, and is removed only after the next manifest is: a
writer killed between any two steps leaves the last whole state.
"""

import fcntl
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.backup import rows
from app.backup.archive import (
    ARTIFACTS,
    DATABASE,
    MANIFEST,
    Backup,
    damaged,
    digest_of,
    is_artifact,
    require_version,
    write_manifest,
)
from app.backup.errors import BackupError
from app.backup.folder import Folder, open_folder, opened
from app.backup.scratch import scratch_place
from lethe import canonical
from models.database.session import opened_engine, reading
from models.database.types import METADATA

PIECES = "pieces"
PIECE = 1 << 16  # bytes: 16 pages of SQLite. Smaller ones are more files to sync
# JSON of rows takes less than so many times their bytes in the database. Of a database whose
# pages refer to each other in circles it would have no end.
EXPANSION = 32
LOCK, READERS = "follower.lock", "readers.lock"
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Followed:
    """The state that a directory has: a log of `size` entries, as it was at `at`."""

    at: str
    files: dict[str, str]  # the digest of each artifact's file
    origin: str
    pieces: list[str]
    root: str
    schema: str
    size: int


def write_followed(directory: Folder, state: Followed) -> None:
    """Make `state`, whose files are there, the one that is restored."""
    directory.write_durably(MANIFEST, canonical.encode(asdict(state)) + b"\n")


def read_followed(directory: Path | Folder) -> Followed | None:
    """Return the state that a directory has; None of a backup that is of one moment.

    Raises:
        BackupError: There is no manifest, or it is damaged.
    """
    try:
        with opened(directory, MANIFEST) as file:
            found: dict[str, Any] = json.loads(file.read())
        if "pieces" not in found:
            return None
        state = Followed(
            str(found["at"]),
            {str(name): str(digest) for name, digest in found["files"].items()},
            str(found["origin"]),
            [str(one) for one in found["pieces"]],
            str(found["root"]),
            str(found["schema"]),
            int(found["size"]),
        )
        datetime.fromisoformat(state.at).astimezone()
        pieces = all(_NAME.fullmatch(one) for one in state.pieces)
        if not pieces or not all(is_artifact(one) for one in state.files):
            raise ValueError
    except FileNotFoundError:
        raise BackupError(
            f"{directory} has no {MANIFEST}: it is no backup, or one that was not finished"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise BackupError(f"{MANIFEST} is damaged: use another backup") from None
    return state


@contextmanager
def as_backup(directory: Path, scratch: Path) -> Iterator[Path]:
    """Yield a backup as `read_manifest` takes it: `directory`, or what its pieces come to.

    A follower may write to `directory` meanwhile. scratch: where a copy of the database may be.

    Raises:
        BackupError: There is no backup, or a piece is not the one of the manifest.
    """
    with _kept(directory):
        state = read_followed(directory)
        if state is None:
            yield directory
            return
        require_version(state.schema)
        with (
            scratch_place(scratch, "restore") as place,
            open_folder(place) as made,
        ):
            count = _put_together(directory, state, made)
            (made.path / ARTIFACTS).symlink_to((directory / ARTIFACTS).absolute())
            files = {DATABASE: digest_of(made, DATABASE), **state.files}
            backup = Backup(state.origin, state.size, state.root, count, len(files), state.at)
            write_manifest(made, backup, files)
            yield made.path


def _put_together(directory: Path, state: Followed, made: Folder) -> int:
    """Write the rows of the pieces' database; return how many they are."""
    size = len(state.pieces) * PIECE
    # A manifest may name a piece any number of times, and an honest one does name the piece of
    # zeros so: there is no bound but the disk. The rows are written beside the database.
    if 2 * size > shutil.disk_usage(made.path).free:
        raise BackupError(
            f"the database and a copy of its rows need {2 * size >> 20} MiB beside {made}: "
            "free space there, or use another backup"
        )
    whole = made.path / "whole.db"
    with whole.open("xb") as file:
        for name in state.pieces:
            piece = read_piece(directory / PIECES, name)
            if piece is None:
                raise BackupError(damaged(f"{PIECES}/{name}"))
            file.write(piece)
    try:
        with (
            opened_engine(f"sqlite:///{whole}") as engine,
            reading(engine).connect() as connection,
            (made.path / DATABASE).open("xb") as file,
        ):
            # Whoever writes manifest and pieces writes the schema too: it calls no functions.
            connection.exec_driver_sql("PRAGMA trusted_schema=OFF")
            _require_plain(connection)
            count = rows.dump(connection, file, most=EXPANSION * size)
    except (DBAPIError, sqlite3.Error, ValueError, LookupError, TypeError):
        raise BackupError(
            "the pieces are no database of this version: use another backup"
        ) from None
    whole.unlink()
    return count


def _require_plain(connection: Connection) -> None:
    """Return if all rows are stored. Raises ValueError: some would be computed, without end."""
    # A view, or a table that a module of SQLite computes.
    computed = "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND rootpage = 0"
    if connection.exec_driver_sql(computed).first() is not None:
        raise ValueError("a view")
    for table in METADATA.sorted_tables:
        columns = connection.exec_driver_sql(f"PRAGMA table_xinfo('{table.name}')")
        if any(column.hidden for column in columns):
            raise ValueError("a computed column")


def read_piece(pieces: Path | Folder, name: str) -> bytes | None:
    """Return the piece of this name; None if it is missing or another."""
    try:
        with opened(pieces, name) as file:
            piece = file.read(PIECE + 1)  # one that is longer is none
    except OSError:
        return None
    found = len(piece) <= PIECE and sha256(piece).hexdigest() == name
    return piece if found else None


@contextmanager
def locked(directory: Folder, name: str, how: int) -> Iterator[bool]:
    """Yield whether the lock of a file was free; it is held until the end of the block.

    Raises:
        BackupError: It is something else than a plain file.
    """
    descriptor = directory.open_lock(name)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


@contextmanager
def _kept(directory: Path) -> Iterator[None]:
    """Have nothing removed from `directory` in this block, if something could be."""
    try:
        file = opened(directory, READERS)
    except OSError:  # a backup of one moment, or a copy of the rest
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_SH)  # a writer holds it while it removes files
        yield
