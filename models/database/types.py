"""Column types with the same meaning on SQLite and PostgreSQL, and one clock for all processes.

Machines' clocks differ, so a lease timed by one machine would end too early or late for
another. Times compared between machines (leases, cooling-off, deadlines) use `clock`, the
database's.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Dialect,
    Integer,
    MetaData,
    func,
    select,
)
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
