"""Upgrades a database to the newest schema, from code and without an ini file."""

from hashlib import sha256
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from lethe.errors import LetheError

LOCK = int.from_bytes(sha256(b"lethe migrate").digest()[:8], "big", signed=True)


class UpgradeRefusedError(LetheError):
    """A database cannot be upgraded to the newest schema, and was not changed."""

    slug, title = "schema-refused", "The database cannot be upgraded"


def alembic_config(connection: Connection) -> Config:
    """Return Alembic's configuration for work on `connection`."""
    config = Config(attributes={"connection": connection})
    here = str(Path(__file__).parent).replace("%", "%%")  # % is ConfigParser's escape
    config.set_main_option("script_location", here)
    config.set_main_option("path_separator", "os")
    return config


def upgrade(engine: Engine) -> None:
    """Apply every missing revision, in one transaction; does nothing if none is missing.

    Safe to call from several processes at once: the first applies the revisions, the others
    wait and find nothing to do. On SQLite the writer transaction is the lock.

    Raises:
        UpgradeRefusedError: A newer Lethe made the schema, or a revision cannot migrate the
            database's rows. Nothing was changed.
        OperationalError: The database cannot be reached.
    """
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
        config = alembic_config(connection)
        for revision in _missing(connection, ScriptDirectory.from_config(config)):
            try:
                command.upgrade(config, revision)
            except DBAPIError as error:
                raise UpgradeRefusedError(
                    f"revision {revision} cannot be applied to what the database holds: "
                    f"{_cause(error)}. Nothing was changed. Remove what the revision does not "
                    "expect, such as another program's table, or restore a backup into an "
                    "empty database"
                ) from None


def _missing(connection: Connection, script: ScriptDirectory) -> list[str]:
    """Return the revisions that a database lacks, oldest first."""
    known = [one.revision for one in script.walk_revisions()][::-1]
    current = MigrationContext.configure(connection).get_current_revision()
    if current is None:
        return known
    if current not in known:
        raise UpgradeRefusedError(
            f"a newer Lethe brought the database to revision {current}: upgrade this one, "
            f"whose newest is {known[-1]}. Nothing was changed"
        )
    return known[known.index(current) + 1 :]


def _cause(error: DBAPIError) -> str:
    """Return the database's error text without row values, which PostgreSQL includes."""
    diagnosis = getattr(error.orig, "diag", None)
    if diagnosis is None:
        return str(error.orig)
    named = {"table": diagnosis.table_name, "constraint": diagnosis.constraint_name}
    parts = [f"{kind} {name}" for kind, name in named.items() if name]
    return ", ".join([f"SQLSTATE {diagnosis.sqlstate}", *parts])
