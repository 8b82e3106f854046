"""A backup that is renewed every few seconds: the database in content-addressed pieces.

    pieces/DIGEST    64 KiB of a SQLite file each; unchanged pieces are not written again
    artifacts/       as in a backup
    manifest.json    replaced last, atomically: the ordered pieces and each file's digest
    follower.lock    held by the one process that writes here
    readers.lock     held during a restore: nothing is removed meanwhile

Files are durable before the manifest that names them, and are removed only after the next
manifest is durable: a writer killed between any two steps leaves the last complete state.
Beside PostgreSQL there are no pieces: the manifest has the moment to recover its archive to.
"""

import fcntl
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
    load_manifest,
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
# Upper limit of the rows' JSON size relative to the database. A crafted database whose pages
# form a cycle would otherwise never end.
EXPANSION = 32
LOCK, READERS = "follower.lock", "readers.lock"
PIECE_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Followed:
    """The state in a follower's directory: a log of `size` entries, as of `at`.

    archived: PostgreSQL's archive has the rows, and `at` is of its clock: the files are those
    of all rows that were committed by then.
    """

    at: str
    files: dict[str, str]  # the digest of each artifact's file
    origin: str
    pieces: list[str]
    root: str
    schema: str
    size: int
    archived: bool = False


def write_followed(directory: Folder, state: Followed) -> None:
    """Write the manifest of `state`, whose files must be durable already."""
    directory.write_durably(MANIFEST, canonical.encode(asdict(state)) + b"\n")


def read_followed(directory: Path | Folder) -> Followed | None:
    """Return the state in a follower's directory, None for a backup of one moment.

    Raises BackupError: the manifest is missing or damaged.
    """
    try:
        found = load_manifest(directory)
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
            found.get("archived") is True,
        )
        datetime.fromisoformat(state.at).astimezone()
        pieces = all(PIECE_NAME.fullmatch(one) for one in state.pieces)
        if not pieces or not all(is_artifact(one) for one in state.files):
            raise ValueError
    except FileNotFoundError:
        raise BackupError(
            f"{directory} has no {MANIFEST}: it is not a backup, or an incomplete one"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise BackupError(f"{MANIFEST} is damaged: use another backup") from None
    return state


@contextmanager
def as_backup(directory: Path, scratch: Path) -> Iterator[Path]:
    """Yield a backup for `read_manifest`: `directory`, or the backup built from its pieces.

    A follower may write to `directory` meanwhile. scratch: the directory for a temporary copy
    of the database.

    Raises BackupError: there is no backup, or a piece does not match the manifest.
    """
    with kept(directory):
        state = read_followed(directory)
        if state is None:
            yield directory
            return
        require_version(state.schema)
        if state.archived:
            raise BackupError(recover_rows(directory, state))
        with scratch_place(scratch, "restore") as place, open_folder(place) as made:
            count = _put_together(directory, state, made)
            (made.path / ARTIFACTS).symlink_to((directory / ARTIFACTS).absolute())
            files = {DATABASE: digest_of(made, DATABASE), **state.files}
            backup = Backup(state.origin, state.size, state.root, count, len(files), state.at)
            write_manifest(made, backup, files)
            yield made.path


def _put_together(directory: Path, state: Followed, made: Folder) -> int:
    """Write the rows of the database in the pieces; return their number."""
    size = len(state.pieces) * PIECE
    # A manifest may name a piece any number of times, as honest ones do with the piece of
    # zeros, so only the disk limits the size. The rows are written beside the database.
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
            # The schema is untrusted, like the pieces: it must not call functions.
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
    """Check that all rows are stored. Raises ValueError if some would be computed."""
    # A view or a virtual table, which could produce rows without end.
    computed = "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND rootpage = 0"
    if connection.exec_driver_sql(computed).first() is not None:
        raise ValueError("a view")
    for table in METADATA.sorted_tables:
        columns = connection.exec_driver_sql(f"PRAGMA table_xinfo('{table.name}')")
        if any(column.hidden for column in columns):
            raise ValueError("a computed column")


def recover_rows(directory: Path, state: Followed) -> str:
    """Return how the rows beside a follower's files are recovered."""
    return (
        f"{directory} has files, and PostgreSQL's archive the rows: recover it to "
        f"recovery_target_time = '{state.at}', and restore these files beside it (operator "
        "guide, Recover PostgreSQL to a moment)"
    )


def read_piece(pieces: Path | Folder, name: str) -> bytes | None:
    """Return the piece with this name; None if it is missing or has another digest."""
    try:
        with opened(pieces, name) as file:
            piece = file.read(PIECE + 1)  # to detect a longer file
    except OSError:
        return None
    found = len(piece) <= PIECE and sha256(piece).hexdigest() == name
    return piece if found else None


@contextmanager
def locked(directory: Folder, name: str, how: int) -> Iterator[bool]:
    """Try to lock a file; yield whether it was free, and hold the lock within the block.

    Raises BackupError: it is not a plain file.
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
def kept(directory: Path) -> Iterator[None]:
    """Prevent a follower from removing files from `directory` within the block."""
    try:
        file = opened(directory, READERS)
    except OSError:  # a backup of one moment, or a copy without the lock file
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_SH)  # a writer holds it while it removes files
        yield
