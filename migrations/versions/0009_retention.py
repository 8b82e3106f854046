"""What the end of retention destroyed, until the log says so and after it.

Revision ID: 0009
Revises: 0008

What an earlier version destroyed is in no entry of the log. Its requests are listed by nothing,
and `lethe log fsck` counts them as before (`app.reconcile.fsck.retention`).
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "retention_removals",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("ref", sa.LargeBinary(), nullable=False),
        sa.Column("before", sa.DateTime(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("log_index", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retention_removals")),
    )
    op.create_index(
        op.f("ix_retention_removals_log_index"), "retention_removals", ["log_index"]
    )


def downgrade() -> None:
    op.drop_table("retention_removals")
