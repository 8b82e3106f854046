"""Restores a backup into an empty database and an empty artifacts directory.

Everything is checked before anything is written. One transaction inserts the rows and replays
the erasure journal, so no reader ever sees erased records. Existing keys are kept, because
guard and journal know what happened after the backup.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import BufferedReader
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.backup import rows
from app.backup.archive import (
    ARTIFACTS,
    DATABASE,
    Backup,
    copy,
    damaged,
    has_digest,
    read_manifest,
    require_version,
)
from app.backup.errors import BackupError
from app.backup.folder import Folder, open_folder, opened
from app.backup.keys import MARK
from app.backup.pieces import Followed, as_backup, kept, read_followed
from app.backup.reapply import Reapplied, reapply
from app.backup.scratch import remove_leftovers
from app.ledger import lock, storage
from app.ledger.guard import ForkedError, SigningGuard
from app.ledger.log_files import read_log_keys
from app.ledger.startup import GUARD, load_entry_key, require_schema
from app.ledger.storage import NodeTable
from app.ledger.transaction import read_tail
from app.reconcile.journal import RESTORED
from app.settings import Settings
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import ErasureJournal
from app.vault.master import RootSecret
from lethe.canonical import format_base64
from lethe.files import PARTIAL, write_durably
from lethe.log.checkpoint import Checkpoint
from lethe.log.tree import EMPTY_ROOT
from migrations.runner import upgrade
from models.database.session import reading
from models.database.types import seal_columns

MOST_LINE = 1 << 30  # bytes: an owner's rows (`models.record.MOST_BLOCK`) in base64
# Bytes of a line, and values of a longer one: short values, lists and objects take up to 25
# times their bytes in memory.
LONG, MOST_COMMAS = 1 << 28, 1000
HALF = b"remove this directory, and run `lethe restore` with --keys\n"  # not all keys are here


@dataclass(frozen=True, slots=True)
class Restored:
    """The restored backup, and the last checkpoint that its keys are known to have signed.

    keys_restored: the keys come from a backup too, so what was signed since is unknown.
    """

    backup: Backup
    guard: Checkpoint
    done: Reapplied
    keys_restored: bool

    @property
    def missing(self) -> int:
        """The number of entries signed after the backup."""
        return max(0, self.guard.size - self.backup.size)


def restore(
    settings: Settings, engine: Engine, directory: Path, keys: Path | None = None
) -> Restored:
    """Restore the backup in `directory`, and the keys from `keys` if they are lost too.

    Raises as `_restore`, and BackupError if a follower's piece is damaged.
    """
    settings.made_data_dir()
    remove_leftovers(settings.data_dir)
    with as_backup(directory, settings.data_dir) as whole:
        return _restore(settings, engine, whole, keys)


def restore_files(settings: Settings, directory: Path, keys: Path | None = None) -> Followed:
    """Restore the files that were followed beside PostgreSQL, and keys from `keys` if given.

    The rows are recovered from PostgreSQL's archive, to the moment of the result.

    Raises:
        BackupError: A file is damaged, the directory has rows or is another log's, or the
            target is not empty.
    """
    settings.made_data_dir()
    with kept(directory):
        state = read_followed(directory)
        if state is None or not state.archived:
            raise BackupError(f"{directory} has rows too: give it without --files")
        require_version(state.schema)
        _require_target(settings, state.origin)
        for name, digest in state.files.items():
            if not has_digest(directory, name, digest):
                raise BackupError(damaged(name))
        if keys is not None:
            _restore_keys(settings.keys_dir, keys)
        _require_all_keys(settings.keys_dir)
        with open_folder(settings.data_dir / ARTIFACTS) as folder:
            _copy_artifacts(directory, state.files, folder)
    return state


def beside(
    settings: Settings, engine: Engine, directory: Path, keys: Path | None = None
) -> Restored:
    """Restore followed files beside the database that PostgreSQL recovered from its archive.

    Nothing in the database is changed.

    Raises:
        BackupError: As `restore_files`; or the database has another log.
        SchemaError: It is not migrated.
        GuardError: The signing guard is missing or damaged.
    """
    require_schema(engine)
    state = restore_files(settings, directory, keys)
    guard = SigningGuard(settings.keys_dir / GUARD).read()
    with Session(reading(engine)) as session:
        size = storage.read_size(session)
        root = format_base64(NodeTable(session).root_at(size))
    backup = Backup(state.origin, size, root, 0, len(state.files), state.at)
    return Restored(backup, guard, Reapplied(), (settings.keys_dir / RESTORED).exists())


def _require_target(settings: Settings, origin: str) -> None:
    if origin != settings.origin:
        raise BackupError("the backup belongs to another log: set LETHE_ORIGIN to its name")
    artifacts = settings.data_dir / ARTIFACTS
    if artifacts.is_dir() and any(artifacts.iterdir()):
        raise BackupError(f"{artifacts} is not empty: nothing is overwritten, move it away")


def _restore(
    settings: Settings, engine: Engine, directory: Path, keys: Path | None
) -> Restored:
    """Restore the backup of one moment in `directory`.

    Raises:
        BackupError: The backup is damaged or another log's, or the target is not empty.
        JournalError: The erasure journal is missing or damaged.
        GuardError: The signing guard is missing or damaged.
        KeyMissingError: entries.key is missing or not a key.
    """
    backup, files = read_manifest(directory)
    _require_target(settings, backup.origin)
    if keys is not None:
        _restore_keys(settings.keys_dir, keys)
    _require_all_keys(settings.keys_dir)
    guard = SigningGuard(settings.keys_dir / GUARD).read()
    root_secret = RootSecret.load(settings)
    seal_columns(engine, root_secret)
    journal = ErasureJournal(settings.keys_dir / JOURNAL, root_secret)
    journal.read()  # before anything is written
    upgrade(engine)
    with Session(engine, expire_on_commit=False) as session:
        lock.take_lock(session)
        connection = session.connection()
        if not rows.is_empty(connection):
            raise BackupError("the database is not empty: restore into a new one")
        count = _load(connection, directory, files[DATABASE])
        _require_log(settings, session, backup, count)
        # With keys from a backup, what was signed since is unknown. An earlier, killed restore
        # may have restored the keys.
        keys_restored = (settings.keys_dir / RESTORED).exists()
        complete = not keys_restored and guard.size <= backup.size
        done = reapply(session, root_secret, journal, complete=complete)
        with open_folder(settings.data_dir / ARTIFACTS) as folder:
            _copy_artifacts(directory, files, folder)
        session.commit()
    return Restored(backup, guard, done, keys_restored)


def _load(connection: Connection, directory: Path, digest: str) -> int:
    """Insert the rows of a backup; return their number.

    Compares the digest again: the file may have been exchanged since `read_manifest`.
    """
    hashed = sha256()

    def lines(file: BufferedReader) -> Iterator[bytes]:
        while line := file.readline(MOST_LINE + 1):
            is_long = len(line) > LONG
            most = LONG if is_long and line.count(b",") > MOST_COMMAS else MOST_LINE
            if len(line) > most:  # not read into memory whatever its length
                raise BackupError(
                    f"{DATABASE} has a line of more than {most} bytes, as no backup of "
                    "Lethe has: use another backup"
                )
            hashed.update(line)
            yield line

    try:
        with opened(directory, DATABASE) as file:
            count = rows.load(connection, lines(file))
    except FileNotFoundError:
        raise BackupError(damaged(DATABASE)) from None
    except ValueError:
        raise BackupError(
            f"{DATABASE} does not have this version's tables: restore it with the "
            "version of Lethe that wrote it"
        ) from None
    if hashed.hexdigest() != digest:
        raise BackupError(damaged(DATABASE))
    return count


def _copy_artifacts(directory: Path, files: Mapping[str, str], folder: Folder) -> None:
    """Copy the artifacts of a backup, checking each digest during the copy.

    Otherwise an artifact exchanged for a link to a key would leak the key in the next backup.
    """
    for name, digest in files.items():
        if name == DATABASE:
            continue
        try:
            found = opened(directory, name)
        except OSError:
            raise BackupError(damaged(name)) from None
        with found, folder.open_durably(Path(name).name) as file:
            if copy(found, file) != digest:
                raise BackupError(damaged(name))


def _require_log(settings: Settings, session: Session, backup: Backup, count: int) -> None:
    """Compare the loaded rows with the manifest and with the log's key."""
    size, nodes = storage.read_size(session), NodeTable(session)
    root = nodes.root_at(size)
    if (count, size, format_base64(root)) != (backup.rows, backup.size, backup.root):
        raise BackupError(
            "the backup has other rows than its manifest says: use another backup"
        )
    latest = storage.latest_checkpoint(session)
    if latest is None:
        raise BackupError("the backup has no log: use another backup")
    signed, _ = read_log_keys(settings).open(latest.note)
    at_signed = nodes.root_at(signed.size)
    if signed.size > size or at_signed != signed.root:
        raise BackupError(
            "the backup's log is not the one that the log's key signed: use "
            "another backup, or the keys that belong to it"
        )
    # The journal's replay reads the entries, so these must match the tree too.
    first = Checkpoint(settings.origin, 0, EMPTY_ROOT)
    try:
        read_tail(session, nodes, first, size, load_entry_key(settings))
    except ForkedError:
        raise BackupError(
            "the backup has other log entries than those that were written: use another backup"
        ) from None


def _restore_keys(target: Path, source: Path) -> None:
    if target.is_dir() and any(target.iterdir()):
        _require_all_keys(target)
        raise BackupError(f"{target} is not empty: keys are never overwritten, drop --keys")
    if not (source / GUARD).is_file():
        raise BackupError(
            f"{source} has no file {GUARD}, so it is not a directory of keys: give another"
        )
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Written first: these keys alone do not show what was signed after they were copied.
    write_durably(target / RESTORED, HALF)
    for path in sorted(source.iterdir()):
        if (
            path.is_file()
            and path.name not in (MARK, RESTORED)
            and not path.name.startswith(PARTIAL)
        ):
            public = path.suffix in (".vkey", ".pem")
            write_durably(
                target / path.name, path.read_bytes(), mode=0o644 if public else 0o600
            )
    write_durably(target / RESTORED, b"run `lethe log recover`\n")


def _require_all_keys(keys: Path) -> None:
    mark = keys / RESTORED
    if mark.exists() and mark.read_bytes() == HALF:
        raise BackupError(
            f"{keys} has a part of the keys, of a restore that did not end: remove that "
            "directory, and run this again with --keys"
        )
