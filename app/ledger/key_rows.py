"""Authenticates rows of `requester_keys`, `bearer_tokens` and `webhooks`.

Anyone with write access to the database could insert a key, a token, a target or rights, or
undo a revocation. So each row has a MAC under a key derived from `entries.key`. A MAC cannot
tell an old row from the newest, so revocations are also listed in a file beside the keys: one
keyed tag per line, durable before the row is updated, append-only. Tokens are revoked by name;
if a token has no row at the time, the line has the name's tag, a space, and a time: all tokens
of this name created until then are revoked.
"""

import fcntl
import os
from collections.abc import Collection
from datetime import UTC, datetime
from hmac import compare_digest, digest
from logging import getLogger
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import rfc8785
from sqlalchemy import Dialect, inspect
from sqlalchemy.engine import Engine
from sqlmodel import Session, select

from app.ledger.entry_macs import EntryKey, KeyMissingError
from lethe import canonical
from lethe.errors import LetheError
from models import BearerToken, RequesterKey, Webhook
from models.database.types import UnsealedError

FILE = "revoked.list"
Row = RequesterKey | BearerToken | Webhook
T = TypeVar("T", RequesterKey, BearerToken, Webhook)
log = getLogger(__name__)


class KeyRows:
    """Authenticates the rows of one installation. `path`: the list of revocations."""

    def __init__(self, key: EntryKey, path: Path) -> None:
        self._key = key.derive("lethe key rows 1")
        self._path = path
        self._read: tuple[tuple[int, int, int], frozenset[str], dict[str, str]] | None = None

    def seal(self, row: Row) -> None:
        """Set a row's MAC over all its other columns. Call it after each change."""
        row.mac = self._mac(row)

    def is_written_here(self, row: Row) -> bool:
        """Return whether this installation wrote the row, now or at an earlier time."""
        try:
            return compare_digest(str(row.mac).encode(), self._mac(row).encode())
        except rfc8785.CanonicalizationError:  # SQLite stores any type
            return False

    def is_believed(self, row: Row) -> bool:
        """Return whether the row was written here and does not predate its revocation."""
        # A webhook has no revoked_at: a replaced row is deleted.
        says_so = not isinstance(row, Webhook) and row.revoked_at is not None
        return self.is_written_here(row) and (says_so or not self._is_listed(row))

    def _is_listed(self, row: Row) -> bool:
        if self.tag(row) in self.revoked():
            return True
        if not isinstance(row, BearerToken) or self._read is None:
            return False
        return _time(row.created_at) <= self._read[2].get(self._name_tag(row.name), "")

    def tag(self, row: Row) -> str:
        """Return the tag of a key or token in the list."""
        return self._tag(type(row), _id(row))

    def _name_tag(self, name: str) -> str:
        return self._hmac(["revoked", BearerToken.__tablename__, "name", name])

    def _tag(self, table: type[Row], identity: str) -> str:
        return self._hmac(["revoked", table.__tablename__, identity])

    def revoked(self) -> frozenset[str]:
        """Return the tags of everything ever revoked.

        Raises KeyMissingError: the list is missing.
        """
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                state = status.st_ino, status.st_size, status.st_mtime_ns
                known = self._read
                if known is None or known[0] != state:
                    lines = file.read().decode("ascii", "replace").split("\n")
                    # Sorted, so that the latest time of each name is kept.
                    pairs = sorted(one.split(" ", 1) for one in lines if " " in one)
                    named = {tag: at for tag, at in pairs}
                    self._read = known = state, frozenset(lines), named
        except FileNotFoundError:
            raise _missing(self._path) from None
        return known[1]

    def revoke(self, row: Row) -> None:
        """List a key or token as revoked, durably. Raises as `ban`."""
        self.ban(type(row), _id(row))

    def ban(self, table: type[Row], identity: str) -> None:
        """List a key or token as revoked, durably, even if it has no row.

        Raises KeyMissingError: the list is missing; OSError: the disk is full or failing.
        """
        if (tag := self._tag(table, identity)) not in self.revoked():
            self._append(tag)

    def end_named(self, name: str, at: datetime) -> None:
        """List all tokens of a name created until `at` as revoked. Raises as `ban`."""
        self._append(f"{self._name_tag(name)} {_time(at)}")

    def _append(self, text: str) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _missing(self._path) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # released on close
            # The leading newline ends a line that a crash cut short.
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
    """Have sessions of `engine`, and of engines derived from it, authenticate rows by `rows`.

    Later calls have no effect: a key file replaced while a process runs is not used.
    """
    _known.setdefault(engine.dialect, rows)


def key_rows(session: Session) -> KeyRows:
    """Return the authenticator of the rows that a session reads and writes.

    Raises KeyMissingError: the engine was opened without entries.key.
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
    """Return the authentic row of a key or token, revoked or not; None if there is none.

    A row that was not written here is logged, without identifying it.
    """
    row = written_here(session, table, identity)
    if row is None or key_rows(session).is_believed(row):
        return row
    _warn(table.__tablename__)
    return None


def written_here(session: Session, table: type[T], identity: str) -> T | None:
    """As `believed`, but also a row from before its revocation.

    For what a key signed before it was revoked, which stays valid: the list has the revocation
    before the row, and a snapshot may be older than both.
    """
    row = loaded(session, table, identity)
    if row is None or key_rows(session).is_written_here(row):
        return row
    _warn(table.__tablename__)
    return None


def all_written_here(
    session: Session, table: type[T], identities: Collection[str]
) -> dict[str, T]:
    """Return those rows that `written_here` returns one by one, in one statement."""
    (identity,) = inspect(table).primary_key
    try:
        rows = session.exec(select(table).where(identity.in_(identities))).all()
    except UnsealedError:
        raise
    except (LetheError, ValueError):  # one of them is unreadable
        each = (written_here(session, table, one) for one in identities)
        return {_id(row): row for row in each if row is not None}
    known = key_rows(session)
    written = {_id(row): row for row in rows if known.is_written_here(row)}
    if len(written) < len(rows):
        _warn(table.__tablename__)
    return written


def loaded(session: Session, table: type[T], identity: str) -> T | None:
    """Return a row as stored, or None if it is missing or unreadable."""
    try:
        return session.get(table, identity)
    except UnsealedError:
        raise
    except (LetheError, ValueError):  # sealed for another place, or an invalid time
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
