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
MAINTAIN = 170000  # PostgreSQL 17 added the privilege to VACUUM another role's table


class GrantError(Exception):
    """The role does not exist, or the database is not PostgreSQL."""


def grant(engine: Engine, role: str) -> None:
    """Grant `role`, which must exist, the service's privileges, and nothing more.

    The role's other privileges on these tables are revoked first. Raises GrantError: the
    database is SQLite, there is no such role, or it could change the log anyway, like
    superusers, the owner and its members; then nothing was granted.
    """
    if engine.dialect.name != "postgresql":
        raise GrantError("roles are PostgreSQL's: a SQLite file has none")
    with engine.begin() as connection:
        known = text("SELECT 1 FROM pg_roles WHERE rolname = :role")
        if connection.execute(known, {"role": role}).first() is None:
            raise GrantError("the database has no such role: CREATE ROLE it first")
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
