"""Backups: everything of one moment, and what of it may be lost.

    database.jsonl   every row, in one read-only snapshot of the running service
    artifacts/       files are durable before their rows, so none of the rows' is missing
    manifest.json    last: the digest of each file; without it there is no backup

Keys go to a directory of their own, or nowhere: a backup that holds them opens itself. Of them
the guard is copied before the database, which then has all that it says was signed, and the
erasure journal after it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.backup import rows
from app.backup.errors import BackupError
from app.backup.folder import Folder, open_plain, opened
from app.ledger import storage
from app.ledger.guard import SigningGuard, require_extends
from app.ledger.startup import GUARD, require_schema
from app.ledger.storage import NodeTable
from app.settings import Settings
from app.vault.journal import FILE as JOURNAL
from app.vault.root import FILE as ROOT
from lethe import canonical
from lethe.files import PARTIAL, sync_directory, write_durably
from lethe.log.spelling import format_base64
from migrations import HEAD
from models.database.session import reading
from models.database.types import utcnow

BLOCK = 1 << 20  # bytes of a file in memory
MANIFEST, DATABASE, ARTIFACTS = "manifest.json", "database.jsonl", "artifacts"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds: a log of `size` entries with this root, of the log `origin`."""

    origin: str
    size: int
    root: str
    rows: int
    files: int
    at: str


def write_backup(
    settings: Settings, engine: Engine, directory: Path, keys: Path | None = None
) -> Backup:
    """Write a backup into the new directory `directory`, keys into `keys` if it is given.

    The service may run meanwhile. Both directories and all files are for their owner only.

    Raises:
        BackupError: A directory is there already.
        GuardError: The log is not the one that was signed: such a backup would be of no use.
        SchemaError: The database is not migrated.
    """
    require_schema(engine)
    _fresh(directory)
    held = SigningGuard(settings.keys_dir / GUARD).read()
    if keys is not None:
        _fresh(keys)
        _copy(settings.keys_dir / GUARD, keys / GUARD)
    with Session(reading(engine)) as session:
        size, nodes = storage.read_size(session), NodeTable(session)
        # What was signed before the snapshot is in it; what is signed meanwhile need not be.
        require_extends(held, settings.origin, size, nodes.root_at)
        root = nodes.root_at(size)
        with create(directory / DATABASE) as file:
            count = rows.dump(session.connection(), file)
    names = [DATABASE]
    source = settings.data_dir / ARTIFACTS
    (directory / ARTIFACTS).mkdir(mode=0o700)
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        target = directory / ARTIFACTS / path.name
        if not path.name.startswith(PARTIAL) and _copy(path, target, open_plain):
            names.append(f"{ARTIFACTS}/{path.name}")
    sync_directory(directory / ARTIFACTS)
    if keys is not None:
        _copy_keys(settings.keys_dir, keys)
    backup = Backup(
        settings.origin, size, format_base64(root), count, len(names), utcnow().isoformat()
    )
    write_manifest(directory, backup, {name: digest_of(directory / name) for name in names})
    return backup


def write_manifest(directory: Path, backup: Backup, files: Mapping[str, str]) -> None:
    """Write the manifest, last of all; files: the digest of each other file."""
    manifest = {
        "at": backup.at,
        "files": dict(files),
        "origin": backup.origin,
        "root": backup.root,
        "rows": backup.rows,
        "schema": HEAD,
        "size": backup.size,
    }
    write_durably(directory / MANIFEST, canonical.encode(manifest) + b"\n", replace=False)


def read_manifest(directory: Path) -> tuple[Backup, dict[str, str]]:
    """Check every file of a backup; return what it holds and the digests.

    Raises:
        BackupError: It has no manifest, is of another schema, or a file is not as written.
    """
    try:
        manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_bytes())
        files = {str(name): str(digest) for name, digest in manifest["files"].items()}
        backup = Backup(
            manifest["origin"],
            manifest["size"],
            manifest["root"],
            manifest["rows"],
            len(files),
            manifest["at"],
        )
        schema = manifest["schema"]
    except FileNotFoundError:
        raise BackupError(
            f"{directory} has no {MANIFEST}: it is no backup, or one that was not finished"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BackupError(f"{MANIFEST} is damaged: use another backup") from None
    require_version(schema)
    for name, digest in files.items():
        path, plain = directory / name, name == DATABASE or is_artifact(name)
        if not plain or not path.is_file() or digest_of(path) != digest:
            raise BackupError(damaged(name))
    return backup, files


def require_version(schema: str) -> None:
    """Return if a backup is of this version's schema. Raises BackupError: it is not."""
    if schema != HEAD:
        raise BackupError(
            f"the backup is of schema {schema} and this version has {HEAD}: restore it with "
            "the version that wrote it, then upgrade"
        )


def is_artifact(name: str) -> bool:
    """Return whether a manifest's name is that of a file in `artifacts/` and nowhere else."""
    return name.startswith(f"{ARTIFACTS}/") and Path(name).name == name.partition("/")[2]


def damaged(name: str) -> str:
    """Return what is said of a file that is not the one of the manifest."""
    return f"{name} is missing or not the file that was backed up: use another backup"


def _copy_keys(source: Path, keys: Path) -> None:
    # Before the master key: at the end of a rotation the new key is in its place before
    # root.sealed is for that alone, so this copy is opened by whichever key is copied next.
    by_name = sorted(source.iterdir(), key=lambda path: (path.name != ROOT, path.name))
    for path in by_name:
        if path.is_file() and path.name not in (GUARD, JOURNAL):
            _copy(path, keys / path.name)
    _copy(source / JOURNAL, keys / JOURNAL)
    sync_directory(keys)


def _fresh(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise BackupError(
            f"{directory} exists: a backup is written into a new directory"
        ) from None


@contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, for its owner only; it is on disk when the block ends."""
    path.touch(mode=0o600, exist_ok=False)
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _open_key(path: Path) -> BinaryIO:
    return path.open("rb")  # links too: secrets are often mounted as such


def _copy(source: Path, target: Path, opens: Callable[[Path], BinaryIO] = _open_key) -> bool:
    """Copy a file durably; False if it is gone."""
    try:
        opened = opens(source)
    except FileNotFoundError:
        return False
    with opened, create(target) as file:
        shutil.copyfileobj(opened, file)
    return True


def copy(source: BinaryIO, target: BinaryIO) -> str:
    """Copy the rest of a file; return the SHA-256, in hex, of what was copied.

    Whoever writes the target's directory may have put something else there by the time that one
    would read it again.
    """
    hashed = sha256()
    while block := source.read(BLOCK):
        hashed.update(block)
        target.write(block)
    return hashed.hexdigest()


def digest_in(directory: Path | Folder, name: str) -> str | None:
    """Return the SHA-256 of a plain file of a directory, in hex; None if there is none."""
    try:
        with opened(directory, name) as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
