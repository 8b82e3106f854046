"""Column types with the same meaning on SQLite and PostgreSQL."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, MetaData
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

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
