"""Column types with the same meaning on SQLite and PostgreSQL, and one clock for all processes.

Machines' clocks differ, so a lease timed by one machine would end too early or late for
another. Times compared between machines (leases, cooling-off, deadlines) use `clock`, the
database's.

Sealed columns: the database holds ciphertext or a keyed tag, row objects the clear text. A copy
of the database alone, such as a backup, a replica or an old page, shows no name, scope or
opening of the log. `seal_columns` registers an engine's sealer; without one these columns can
neither be read nor written.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Dialect,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TableClause,
    column,
    func,
    select,
    table,
)
from sqlalchemy.engine import Engine
from sqlalchemy.types import TypeDecorator
from sqlmodel import Session, SQLModel

# Name every constraint, so that a later migration can drop it on SQLite.
SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
METADATA: MetaData = SQLModel.metadata
# Table rows are never validated, so do not build pydantic's validators for them.
SQLModel.model_config["defer_build"] = True

# A log index or size. On SQLite only a column declared INTEGER can be the rowid; any other
# primary key needs a second B-tree.
LogNumber = BigInteger().with_variant(Integer(), "sqlite")


class UTCDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC. SQLite forgets the zone, so it is stored naive in UTC."""

    impl = DateTime(timezone=False)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a naive time, whose zone would be unknown later."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time needs a zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return the stored time with its zone, UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


def utcnow() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(UTC)


def clock(at: Session | Connection) -> datetime:
    """Return the database's current time, aware, in UTC; on SQLite this machine's.

    Not the transaction's start time: the transaction may have waited for the log's lock.
    """
    connection = at.connection() if isinstance(at, Session) else at
    if connection.dialect.name != "postgresql":
        return utcnow()
    now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return now.astimezone(UTC)


BEGAN = "began"  # in a session's `info`: the database's time when the log's lock was taken


def began(session: Session) -> datetime:
    """Return when a session's transaction of the log began; in others, what `clock` returns."""
    found: datetime | None = session.info.get(BEGAN)
    return found or clock(session)


TAG_SIZE = 64  # characters of a tag


class Sealer(Protocol):
    """The operations that columns need. `aad` is the table and column."""

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Return `plaintext` sealed with a new nonce."""

    def open(self, blob: bytes, aad: bytes) -> bytes:
        """Return the plaintext that `seal` sealed."""

    def seal_name(self, plaintext: bytes, aad: bytes) -> bytes:
        """Return `plaintext` sealed; equal plaintexts give equal bytes."""

    def open_name(self, blob: bytes, aad: bytes) -> bytes:
        """Return the plaintext that `seal_name` sealed."""

    def tag(self, purpose: str, value: str) -> str:
        """Return a keyed one-way tag of `value`: TAG_SIZE hexadecimal digits."""


class UnsealedError(RuntimeError):
    """A sealed column was used on an engine without a sealer."""


class Tag(str):
    """A tag as stored. Binding it does not tag it again."""

    __slots__ = ()


_sealers: WeakKeyDictionary[Dialect, Sealer] = WeakKeyDictionary()


def seal_columns(engine: Engine, sealer: Sealer) -> None:
    """Let `engine`, and every engine derived from it, read and write sealed columns."""
    _sealers[engine.dialect] = sealer


def can_open(engine: Engine) -> bool:
    """Return whether sealed columns can be read and written on `engine`."""
    return engine.dialect in _sealers


def as_stored(found: Table) -> TableClause:
    """Return a table whose columns read and write stored values, without a key."""
    return table(found.name, *(column(one.name, _stored(one.type)) for one in found.columns))


def _stored(kind: Any) -> Any:
    if isinstance(kind, Sealed):
        return LargeBinary()
    return String() if isinstance(kind, Tagged) else kind


def sealer_of(dialect: Dialect) -> Sealer | None:
    """Return the sealer registered for the engine of `dialect`, or None."""
    return _sealers.get(dialect)


def _sealer(dialect: Dialect) -> Sealer:
    if (found := sealer_of(dialect)) is None:
        raise UnsealedError(
            "a sealed column needs the master key: restore master.key, or set LETHE_MASTER_KEY"
        )
    return found


def _blob(value: Any) -> bytes:
    """Return stored bytes; text, which SQLite allows in a column of bytes, becomes empty."""
    return b"" if isinstance(value, str) else bytes(value)


class Sealed(TypeDecorator[Any]):
    """Ciphertext under AES-256-GCM, bound to `place`: it does not open in another column."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        """Seal; None stays NULL."""
        if value is None:
            return None
        return _sealer(dialect).seal(self.encode(value), self.place.encode())

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Open."""
        if value is None:
            return None
        return self.decode(_sealer(dialect).open(_blob(value), self.place.encode()))

    def encode(self, value: Any) -> bytes:
        """Return the bytes to seal for a value."""
        return bytes(value)

    def decode(self, data: bytes) -> Any:
        """Return the value that `encode` encoded."""
        return data


class SealedBytes(Sealed):
    """Sealed bytes."""

    cache_ok = True


class SealedJSON(Sealed):
    """Sealed JSON."""

    cache_ok = True

    def encode(self, value: Any) -> bytes:
        """Return JSON."""
        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        """Parse JSON."""
        return json.loads(data)


class SealedText(Sealed):
    """Sealed text. It cannot be searched; a `Tagged` column beside it can."""

    cache_ok = True

    def encode(self, value: Any) -> bytes:
        """Return UTF-8."""
        return str(value).encode()

    def decode(self, data: bytes) -> Any:
        """Decode UTF-8."""
        return data.decode()


class SealedName(SealedText):
    """Text under AES-256-SIV (RFC 5297): can be unique and found by equality, not ordered."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        """Seal; None stays NULL."""
        return self.bind_all([value], dialect)[0]

    def bind_all(self, values: Iterable[Any], dialect: Dialect) -> list[bytes | None]:
        """Seal many values; one at a time takes three times as long."""
        sealer, place = _sealer(dialect), self.place.encode()
        return [
            None if one is None else sealer.seal_name(self.encode(one), place) for one in values
        ]

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Open."""
        if value is None:
            return None
        return self.decode(_sealer(dialect).open_name(_blob(value), self.place.encode()))


def tag_of(dialect: Dialect, purpose: str, value: str) -> Tag:
    """Return a value's tag as a `Tagged` column of this purpose stores it; tags unchanged."""
    return value if isinstance(value, Tag) else Tag(_sealer(dialect).tag(purpose, value))


class Tagged(TypeDecorator[str]):
    """A one-way tag of a text (HMAC-SHA256), which can be compared but not reversed.

    Tags of columns with the same `purpose` are comparable, others are not.
    """

    impl = String
    cache_ok = True

    def __init__(self, purpose: str) -> None:
        super().__init__(length=TAG_SIZE)
        self.purpose = purpose

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Tag a value; tags stay as they are."""
        return None if value is None else tag_of(dialect, self.purpose, value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Tag | None:
        """Return the stored tag as a `Tag`."""
        return None if value is None else Tag(value)
