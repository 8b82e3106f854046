"""Triggers that refuse to change or remove what the log says, on both databases.

Revision ID: 0002
Revises: 0001

They stop mistakes and injected SQL, not the database's owner, who can drop them; checkpoints
held by others protect against the owner. On PostgreSQL, `lethe migrate --grant ROLE` also lets
the service run as a role without privileges to change these tables.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = {
    "log_entries": ('"index"',),
    "log_nodes": ("level", '"index"'),
    "log_checkpoints": ("size",),
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for table, key in TABLES.items():
            _refuse_on_sqlite(table, key)
    else:
        _refuse_on_postgresql()


def _refuse_on_sqlite(table: str, key: tuple[str, ...]) -> None:
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
    # INSERT OR REPLACE deletes the old row without firing DELETE triggers.
    same = " AND ".join(f"{column} = NEW.{column}" for column in key)
    op.execute(
        f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "  # noqa: S608 - constants
        f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    )


def _refuse_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION lethe_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME "
        "USING ERRCODE = 'insufficient_privilege'; END $$"
    )
    for table in TABLES:
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE "
            f"ON {table} FOR EACH STATEMENT EXECUTE FUNCTION lethe_refuse_change()"
        )
        # ALWAYS: session_replication_role = replica disables ordinary triggers.
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only")


def downgrade() -> None:
    postgresql = op.get_bind().dialect.name == "postgresql"
    for table in TABLES:
        if postgresql:
            op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
        else:
            for what in ("update", "delete", "replace"):
                op.execute(f"DROP TRIGGER {table}_no_{what}")
    if postgresql:
        op.execute("DROP FUNCTION lethe_refuse_change")
