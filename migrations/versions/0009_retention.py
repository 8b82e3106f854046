"""What the end of retention destroyed, and legal holds.

Revision ID: 0009
Revises: 0008

Items that an earlier version destroyed are in no log entry. Their requests are listed nowhere,
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
    op.create_table(
        "legal_holds",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("target", sa.String(length=80), nullable=False),
        sa.Column("reason", sa.LargeBinary(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("placed_by", sa.String(length=80), nullable=False),
        sa.Column("placed_at", sa.DateTime(), nullable=False),
        sa.Column("log_index", NUMBER, nullable=False),
        sa.Column("released_by", sa.String(length=80), nullable=True),
        sa.Column("released_at", sa.DateTime(), nullable=True),
        sa.Column("release_index", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_legal_holds")),
    )
    op.create_index(op.f("ix_legal_holds_target"), "legal_holds", ["target"])


def downgrade() -> None:
    op.drop_table("legal_holds")
    op.drop_table("retention_removals")
