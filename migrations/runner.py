"""Bringing a database to the newest schema, from code and without an ini file."""

from hashlib import sha256
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, func, select
from sqlalchemy.engine import Engine

LOCK = int.from_bytes(sha256(b"lethe migrate").digest()[:8], "big", signed=True)


def alembic_config(connection: Connection) -> Config:
    """Return Alembic's configuration for work on `connection`."""
    config = Config(attributes={"connection": connection})
    here = str(Path(__file__).parent).replace("%", "%%")  # % is ConfigParser's escape
    config.set_main_option("script_location", here)
    config.set_main_option("path_separator", "os")
    return config


def upgrade(engine: Engine) -> None:
    """Apply every missing revision, in one transaction; does nothing if none is missing.

    Safe to call from several processes at once: the first applies, the others wait and
    find nothing to do. SQLite's writer transaction is itself the lock.
    """
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
        command.upgrade(alembic_config(connection), "head")
