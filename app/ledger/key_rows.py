"""Which rows of `requester_keys`, `bearer_tokens` and `webhooks` this installation wrote.

Whoever may write the database may put a key, a token, a target or other rights there, or take a
revocation back. Each row has a MAC under a key derived from `entries.key`. A MAC does not tell
an older row from the newest, so revocations are also listed in a file beside the keys: it holds
one keyed tag a line, is durable before the row says so, and is only ever appended to. A token
is revoked by its name: where it has no row then, the line has the name's tag, a space, and the
time until which all tokens of this name were made that count no more.
"""

import fcntl
import os
from datetime import UTC, datetime
from hmac import compare_digest, digest
from logging import getLogger
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import rfc8785
from sqlalchemy import Dialect, inspect
from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.ledger.entry_macs import EntryKey, KeyMissingError
from lethe import canonical
from lethe.errors import LetheError
from lethe.files import write_durably
from models import BearerToken, RequesterKey, Webhook
from models.database.sealed import UnsealedError

FILE = "revoked.list"
Row = RequesterKey | BearerToken | Webhook
T = TypeVar("T", RequesterKey, BearerToken, Webhook)
log = getLogger(__name__)


class KeyRows:
    """What authenticates the rows of one installation. `path`: the list of revocations."""

    def __init__(self, key: EntryKey, path: Path) -> None:
        self._key = key.derive("lethe key rows 1")
        self._path = path
        self._read: tuple[tuple[int, int, int], frozenset[str], dict[str, str]] | None = None

    @staticmethod
    def create(path: Path) -> None:
        """Begin an empty list of revocations; one that exists is kept."""
        try:
            write_durably(path, b"", replace=False)
        except FileExistsError:
            return

    def seal(self, row: Row) -> None:
        """Put the MAC of all its other columns into a row. Call it after each change."""
        row.mac = self._mac(row)

    def is_written_here(self, row: Row) -> bool:
        """Return whether the row is, or once was, as this installation wrote it."""
        try:
            return compare_digest(str(row.mac).encode(), self._mac(row).encode())
        except rfc8785.CanonicalizationError:  # SQLite stores any type
            return False

    def is_believed(self, row: Row) -> bool:
        """Return whether the row was written here and is no older than its revocation."""
        # A webhook's row that gave way to a newer one is deleted: it says nothing itself.
        says_so = not isinstance(row, Webhook) and row.revoked_at is not None
        return self.is_written_here(row) and (says_so or not self._is_listed(row))

    def _is_listed(self, row: Row) -> bool:
        if self.tag(row) in self.revoked():
            return True
        if not isinstance(row, BearerToken) or self._read is None:
            return False
        return _time(row.created_at) <= self._read[2].get(self._name_tag(row.name), "")

    def tag(self, row: Row) -> str:
        """Return what the list names a key or token by."""
        return self._tag(type(row), _id(row))

    def _name_tag(self, name: str) -> str:
        return self._hmac(["revoked", BearerToken.__tablename__, "name", name])

    def _tag(self, table: type[Row], identity: str) -> str:
        return self._hmac(["revoked", table.__tablename__, identity])

    def revoked(self) -> frozenset[str]:
        """Return the tags of all that was ever revoked.

        Raises:
            KeyMissingError: The list is missing.
        """
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                state = status.st_ino, status.st_size, status.st_mtime_ns
                known = self._read
                if known is None or known[0] != state:
                    lines = file.read().decode("ascii", "replace").split("\n")
                    # Sorted: the latest time of a name is the one that is kept.
                    pairs = sorted(one.split(" ", 1) for one in lines if " " in one)
                    named = {tag: at for tag, at in pairs}
                    self._read = known = state, frozenset(lines), named
        except FileNotFoundError:
            raise _missing(self._path) from None
        return known[1]

    def revoke(self, row: Row) -> None:
        """List a key or token as revoked; it is on disk when this returns. Raises as `ban`."""
        self.ban(type(row), _id(row))

    def ban(self, table: type[Row], identity: str) -> None:
        """List a key or token as revoked that may have no row now.

        Raises:
            KeyMissingError: The list is missing.
            OSError: The disk is full or failing.
        """
        if (tag := self._tag(table, identity)) not in self.revoked():
            self._append(tag)

    def end_named(self, name: str, at: datetime) -> None:
        """List all tokens of a name that were made until `at` as revoked. Raises as `ban`."""
        self._append(f"{self._name_tag(name)} {_time(at)}")

    def _append(self, text: str) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _missing(self._path) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # until it is closed
            # A crash may have cut the last line: the next one must not continue it.
            line = f"\n{text}\n".encode()
            if os.write(descriptor, line) != len(line):
                raise OSError("the disk took only part of a line of the list of revocations")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _mac(self, row: Row) -> str:
        columns = row.model_dump(exclude={"mac"})
        said = {
            name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
            for name, value in columns.items()
        }
        return self._hmac(["row", row.__tablename__, said])

    def _hmac(self, message: list[Any]) -> str:
        return digest(self._key, canonical.encode(message), "sha256").hex()


_known: WeakKeyDictionary[Dialect, KeyRows] = WeakKeyDictionary()


def authenticate_rows(engine: Engine, rows: KeyRows) -> None:
    """Let sessions of `engine`, and of every engine derived from it, tell rows by `rows`.

    The first one stays: a key file that is replaced while a process runs is not its key.
    """
    _known.setdefault(engine.dialect, rows)


def key_rows(session: Session) -> KeyRows:
    """Return what authenticates the rows that a session reads and writes.

    Raises:
        KeyMissingError: Its engine was opened without entries.key.
    """
    if (found := known_rows(session)) is None:
        raise KeyMissingError(
            "entries.key is missing: restore it from the backup of the keys directory"
        )
    return found


def known_rows(session: Session) -> KeyRows | None:
    """As `key_rows`, but None where entries.key is missing."""
    return _known.get(session.get_bind().dialect)


def believed(session: Session, table: type[T], identity: str) -> T | None:
    """Return the row of a key or token, revoked or not, or None if there is none to believe.

    That one is there and was not written here is logged, without saying which.
    """
    row = loaded(session, table, identity)
    if row is None or key_rows(session).is_believed(row):
        return row
    _warn(table.__tablename__)
    return None


def loaded(session: Session, table: type[T], identity: str) -> T | None:
    """Return a row as it is stored, or None if there is none, or one that cannot be read."""
    try:
        return session.get(table, identity)
    except UnsealedError:
        raise
    except (LetheError, ValueError):  # sealed for another place, or no time at all
        _warn(table.__tablename__)
        return None


def _warn(table: object) -> None:
    log.warning(
        "a row of %s is not as this installation wrote it, and counts as unknown: run "
        "`lethe log fsck`",
        table,
    )


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def _id(row: Row) -> str:
    (identity,) = inspect(type(row)).primary_key_from_instance(row)
    return str(identity)


def _missing(path: Path) -> KeyMissingError:
    return KeyMissingError(
        f"{path} is missing: restore it from the newest backup of the keys directory; without "
        "it, revoked keys and tokens could be good again"
    )
