"""Backups: the whole state of an installation at one moment.

    database.jsonl   every row, in one read-only snapshot of the running service
    artifacts/       every file that a row of that moment names
    manifest.json    written last: the digest of each file; without it the backup is incomplete

Keys go to a separate directory or are left out: a backup that contains them can be opened by
anyone. The guard is copied before the database, which then has all signed entries, and the
erasure journal after it (`app.backup.keys`).

A file is durable before its row commits, and is removed after its row was changed. So files are
copied before the snapshot, and again in it, before the rows are read: the new ones. If one is
removed before it is copied then, the rows may name it, and another snapshot is taken.
"""

import json
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.backup import rows
from app.backup.errors import BackupError
from app.backup.folder import Folder, open_folder, opened
from app.backup.keys import copy_guard, copy_keys
from app.backup.scratch import remove_leftovers
from app.ledger import storage
from app.ledger.guard import SigningGuard, require_extends
from app.ledger.startup import GUARD, require_schema
from app.ledger.storage import NodeTable
from app.settings import Settings
from lethe import canonical
from lethe.canonical import format_base64
from lethe.files import PARTIAL
from migrations import HEAD
from models import Artifact
from models.database.session import reading, rows_in
from models.database.types import utcnow

TRIES = 50  # snapshots: a file may be removed too early, as a draft is at a job's end
REMOVED = "files are removed faster than they are copied: start it again"
BLOCK = 1 << 20  # bytes of a file in memory
MANIFEST, DATABASE, ARTIFACTS = "manifest.json", "database.jsonl", "artifacts"
MOST_MANIFEST = 1 << 28  # bytes: two million files
# Bytes of each file or piece that it names, and how many other values it may have. Shorter
# values, lists and objects would take up to 25 times their bytes in memory.
LEAST_ITEM, MOST_OTHERS = 64, 100_000


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup's content: the log `origin` of `size` entries and this root, rows and files."""

    origin: str
    size: int
    root: str
    rows: int
    files: int
    at: str


def write_backup(
    settings: Settings, engine: Engine, directory: Path, keys: Path | None = None
) -> Backup:
    """Write a backup into the new directory `directory`, and keys into `keys` if given.

    The service may keep running. Directories and files are accessible to their owner only.

    Raises:
        BackupError: A directory exists already, or files are removed too fast.
        GuardError: The log is not the signed one, so a backup would be useless.
        SchemaError: The database is not migrated.
    """
    require_schema(engine)
    remove_leftovers(settings.data_dir)
    with open_folder(directory, new=True) as folder, ExitStack() as also:
        held = SigningGuard(settings.keys_dir / GUARD).read()
        copied = None
        if keys is not None:
            copied = also.enter_context(open_folder(keys, new=True))
            copy_guard(settings.keys_dir, copied)
        source, files = settings.data_dir / ARTIFACTS, dict[str, str]()
        with folder.inside(ARTIFACTS, new=True) as artifacts:
            _copy_new(source, artifacts, files)  # most of them, without a snapshot
            for _ in range(TRIES):
                before = _names(source)
                with Session(reading(engine)) as session:
                    size, nodes = storage.read_size(session), NodeTable(session)
                    # The guard was read before the snapshot, which has everything signed then.
                    require_extends(held, settings.origin, size, nodes.root_at)
                    if not _copy_new(source, artifacts, files, before):
                        continue
                    root = nodes.root_at(size)
                    with folder.open_durably(DATABASE) as file:
                        count = rows.dump(session.connection(), file)
                    _drop_destroyed(session, source, artifacts, files)
                break
            else:
                raise BackupError(REMOVED)
        files[DATABASE] = digest_of(folder, DATABASE)
        if copied is not None:
            copy_keys(settings.keys_dir, copied)
        backup = Backup(
            settings.origin, size, format_base64(root), count, len(files), utcnow().isoformat()
        )
        write_manifest(folder, backup, files)
    return backup


def _names(source: Path) -> list[str]:
    found = sorted(source.iterdir()) if source.is_dir() else []
    return [path.name for path in found if not path.name.startswith(PARTIAL)]


def _copy_new(
    source: Path, folder: Folder, files: dict[str, str], before: Sequence[str] = ()
) -> bool:
    """Copy the files that `files` lacks, and add their digests; return whether none was lost.

    before: names that were there earlier. A file is lost if it was removed before it was
    copied.
    """
    names = sorted({*before, *_names(source)})
    for one in names:
        if (name := f"{ARTIFACTS}/{one}") not in files:
            digest = copy_artifact(source / one, folder)
            if digest is not None:
                files[name] = digest
    return not is_any_lost(source, names, files)


def is_any_lost(source: Path, names: Iterable[str], files: Container[str]) -> bool:
    """Return whether an artifact was removed before it was copied.

    files: those copied, as a manifest names them. What is there and is no plain file is not
    copied.
    """
    left = (one for one in names if f"{ARTIFACTS}/{one}" not in files)
    return any(not os.path.lexists(source / one) for one in left)


def _drop_destroyed(
    session: Session, source: Path, folder: Folder, files: dict[str, str]
) -> None:
    """Remove the copies of files that were destroyed before the snapshot of `session`."""
    gone = [Path(name).name for name in files if not os.path.lexists(source / Path(name).name)]
    live = select(Artifact.id).where(col(Artifact.wrapped_key).is_not(None))
    kept = set(rows_in(session, live, col(Artifact.id), gone))
    for one in set(gone) - kept:
        folder.unlink(one)
        del files[f"{ARTIFACTS}/{one}"]


def write_manifest(directory: Folder, backup: Backup, files: Mapping[str, str]) -> None:
    """Write the manifest, as the last file. files: the digest of each other file."""
    manifest = {**asdict(backup), "files": dict(files), "schema": HEAD}
    directory.write_durably(MANIFEST, canonical.encode(manifest) + b"\n")


def load_manifest(directory: Path | Folder) -> dict[str, Any]:
    """Return the JSON of a manifest, of MOST_MANIFEST bytes at most.

    Whoever writes the directory could have a sparse file of any size read into memory, or one
    that becomes larger there. Raises ValueError, RecursionError, OSError.
    """
    with opened(directory, MANIFEST) as file:
        data = file.read(MOST_MANIFEST + 1)
    if len(data) > MOST_MANIFEST:
        raise ValueError(f"{MANIFEST} is too long")
    if sum(map(data.count, (b"[", b"{", b","))) > MOST_OTHERS + len(data) // LEAST_ITEM:
        raise ValueError(f"{MANIFEST} has more values than one of its length")
    found: dict[str, Any] = json.loads(data)
    return found


def read_manifest(directory: Path) -> tuple[Backup, dict[str, str]]:
    """Check every file of a backup; return its content and the digests.

    Raises BackupError: the manifest is missing, the schema is another, or a file was changed.
    """
    try:
        manifest = load_manifest(directory)
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
            f"{directory} has no {MANIFEST}: it is not a backup, or an incomplete one"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BackupError(f"{MANIFEST} is damaged: use another backup") from None
    require_version(schema)
    for name, digest in files.items():
        plain = name == DATABASE or is_artifact(name)
        if not plain or not has_digest(directory, name, digest):
            raise BackupError(damaged(name))
    return backup, files


def require_version(schema: str) -> None:
    """Check that a backup has this version's schema. Raises BackupError if not."""
    if schema != HEAD:
        raise BackupError(
            f"the backup is of schema {schema} and this version has {HEAD}: restore it with "
            "the version that wrote it, then upgrade"
        )


def is_artifact(name: str) -> bool:
    """Return whether a name in a manifest is a file directly in `artifacts/`."""
    return name.startswith(f"{ARTIFACTS}/") and Path(name).name == name.partition("/")[2]


def damaged(name: str) -> str:
    """Return the error text for a file that differs from the manifest."""
    return f"{name} is missing or not the file that was backed up: use another backup"


def copy_artifact(source: Path, folder: Folder) -> str | None:
    """Copy a file durably and return its digest; None if it is gone, such as shredded."""
    try:
        found = opened(source.parent, source.name)
    except FileNotFoundError:
        return None
    with found, folder.open_durably(source.name) as file:
        return copy(found, file)


def copy(source: BinaryIO, target: BinaryIO) -> str:
    """Copy the rest of a file; return the SHA-256, in hex, of the copied bytes.

    Hashing the target afterwards would not do: somebody with write access could replace it.
    """
    hashed = sha256()
    while block := source.read(BLOCK):
        hashed.update(block)
        target.write(block)
    return hashed.hexdigest()


def digest_of(directory: Path | Folder, name: str) -> str:
    """Return the SHA-256, in hex, of a plain file in a directory."""
    with opened(directory, name) as file:
        return file_digest(file, "sha256").hexdigest()


def has_digest(directory: Path | Folder, name: str, digest: str) -> bool:
    """Return whether a plain file exists and has this digest."""
    try:
        return digest_of(directory, name) == digest
    except OSError:
        return False
