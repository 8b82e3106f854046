"""The service's role on PostgreSQL: it can append to the log and cannot change it.

The owner of the tables migrates; the service runs as another role that may not UPDATE, DELETE
or TRUNCATE the tables that the triggers protect, or drop the triggers.
"""

from sqlalchemy import Connection, text
from sqlalchemy.engine import Engine

import models  # noqa: F401 - registers every table
from models.database.types import METADATA

APPEND_ONLY = (
    "log_entries",
    "log_nodes",
    "log_checkpoints",
    "witnessed_checkpoints",
    "key_events",
)
# Whatever the privilege's origin: membership counts even if it is not inherited.
_CHANGES = """
SELECT 1 FROM pg_class c WHERE c.oid = ANY (
    SELECT to_regclass(quote_ident(one)) FROM unnest(CAST(:tables AS text[])) AS one
) AND (
    has_table_privilege(:role, c.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER')
    OR has_any_column_privilege(:role, c.oid, 'UPDATE')
    OR EXISTS (
        SELECT 1 FROM pg_roles r WHERE pg_has_role(:role, r.oid, 'MEMBER') AND (
            r.oid = c.relowner
            OR has_table_privilege(r.oid, c.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER')
        )
    )
)
"""
# What replaces tables instead of changing them, or reaches the server's files and processes. By
# CREATE in the schema, also an operator's next migration would run functions of the role's.
_REPLACES = """
SELECT 1 FROM pg_namespace n, pg_database d
WHERE n.oid = to_regnamespace(quote_ident(:schema)) AND d.datname = current_database() AND (
    has_schema_privilege(:role, n.oid, 'CREATE')
    OR EXISTS (
        SELECT 1 FROM pg_roles r WHERE pg_has_role(:role, r.oid, 'MEMBER') AND (
            r.oid IN (n.nspowner, d.datdba)
            OR has_schema_privilege(r.oid, n.oid, 'CREATE')
            OR r.rolname IN ('pg_execute_server_program', 'pg_write_server_files')
        )
    )
)
"""
MAINTAIN = 170000  # PostgreSQL 17 added the privilege to VACUUM another role's table


class GrantError(Exception):
    """The role does not exist, or the database is not PostgreSQL."""


def check_role(engine: Engine, role: str) -> None:
    """Check, before a migration, that `role` exists and cannot replace what it may not change.

    Raises GrantError: it could, there is no such role, or the database is SQLite.
    """
    if engine.dialect.name != "postgresql":
        raise GrantError("roles are PostgreSQL's: a SQLite file has none")
    with engine.connect() as connection:
        known = text("SELECT 1 FROM pg_roles WHERE rolname = :role")
        if connection.execute(known, {"role": role}).first() is None:
            raise GrantError("the database has no such role: CREATE ROLE it first")
        schema = str(connection.dialect.default_schema_name)
        if connection.execute(text(_REPLACES), {"role": role, "schema": schema}).all():
            raise GrantError(
                "this role can replace the log's tables whatever it is granted: it may CREATE "
                f"in the schema {schema}, owns it or the database, is a superuser, or may run "
                f"programs or write files on the server: REVOKE CREATE ON SCHEMA {schema} FROM "
                "PUBLIC (up to PostgreSQL 14 it is granted by default), or CREATE ROLE another"
            )


def grant(engine: Engine, role: str) -> None:
    """Grant `role`, which must exist, the service's privileges, and nothing more.

    The role's other privileges on these tables are revoked first. Raises GrantError: as
    `check_role`, or the role could change the log anyway, like members of the tables' owner;
    then nothing was granted.
    """
    check_role(engine, role)
    with engine.begin() as connection:
        for statement in _statements(connection, role):
            connection.execute(text(statement))
        if connection.execute(text(_CHANGES), {"role": role, "tables": [*APPEND_ONLY]}).all():
            raise GrantError(
                "this role can change the log whatever it is granted: it is a superuser, owns "
                "the tables, is a member of a role that may, or PUBLIC may: take that away, or "
                "CREATE ROLE another"
            )


def _statements(connection: Connection, role: str) -> list[str]:
    quote = connection.dialect.identifier_preparer.quote_identifier
    to, tables = quote(role), sorted(METADATA.tables)
    free = [quote(table) for table in tables if table not in APPEND_ONLY]
    verbs = "SELECT, INSERT, UPDATE, DELETE"
    version = connection.execute(text("SHOW server_version_num")).scalar_one()
    if int(version) >= MAINTAIN:
        verbs += ", MAINTAIN"  # for `app.vault.scrub`
    schema = quote(str(connection.dialect.default_schema_name))
    return [
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {to}",
        f"GRANT USAGE ON SCHEMA {schema} TO {to}",
        f"GRANT SELECT, INSERT ON {', '.join(APPEND_ONLY)} TO {to}",
        f"GRANT {verbs} ON {', '.join(free)} TO {to}",
        f"GRANT SELECT ON alembic_version TO {to}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {to}",
    ]
