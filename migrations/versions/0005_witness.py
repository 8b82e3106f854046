"""Checkpoints with the lines of witnesses, and how each witness stands.

Revision ID: 0005
Revises: 0004

`witnessed_checkpoints` decides which checkpoint a certificate carries forever, so it is
append-only, like the log.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLE = "witnessed_checkpoints"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column(
            "size", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False
        ),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("mac", sa.String(length=64), nullable=False),
        sa.Column("stored_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("size", name=op.f("pk_witnessed_checkpoints")),
    )
    op.create_table(
        "witness_standings",
        sa.Column("witness", sa.String(length=600), nullable=False),
        sa.Column("size", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cosigned_at", sa.DateTime(), nullable=True),
        sa.Column("problem", sa.String(length=16), nullable=True),
        sa.Column("since", sa.DateTime(), nullable=True),
        sa.Column("evidence", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("witness", name=op.f("pk_witness_standings")),
    )
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {TABLE}_no_{verb.lower()} BEFORE {verb} ON {TABLE} "
                f"BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END"
            )
        # INSERT OR REPLACE deletes the old row without firing DELETE triggers.
        op.execute(
            f"CREATE TRIGGER {TABLE}_no_replace BEFORE INSERT ON {TABLE} "  # noqa: S608
            f"WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE size = NEW.size) "
            f"BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END"
        )
    else:
        op.execute(
            f"CREATE TRIGGER {TABLE}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE "
            f"ON {TABLE} FOR EACH STATEMENT EXECUTE FUNCTION lethe_refuse_change()"
        )
        op.execute(f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {TABLE}_append_only")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for what in ("update", "delete", "replace"):
            op.execute(f"DROP TRIGGER {TABLE}_no_{what}")
    else:
        op.execute(f"DROP TRIGGER {TABLE}_append_only ON {TABLE}")
    op.drop_table("witness_standings")
    op.drop_table(TABLE)
