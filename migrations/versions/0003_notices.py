"""Endpoints of webhooks, deliveries, and how far the log was read for notices.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("row", sa.String(length=60), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("url", sa.LargeBinary(), nullable=False),
        sa.Column("events", sa.LargeBinary(), nullable=False),
        sa.Column("model", sa.String(length=80), nullable=True),
        sa.Column("secrets", sa.LargeBinary(), nullable=False),
        sa.Column("created_by", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("disabled", sa.String(length=40), nullable=True),
        sa.Column("mac", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_webhooks")),
    )
    op.create_index(op.f("ix_webhooks_id"), "webhooks", ["id"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("receiver", sa.String(length=40), nullable=False),
        sa.Column("event", sa.String(length=40), nullable=False),
        sa.Column("about", sa.String(length=120), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.DateTime(), nullable=False),
        sa.Column("lease_until", sa.DateTime(), nullable=True),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("answer", sa.String(length=40), nullable=True),
        sa.Column("ended_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    op.create_index(op.f("ix_deliveries_receiver"), "deliveries", ["receiver"])
    op.create_index("ix_deliveries_state_next_at", "deliveries", ["state", "next_at"])
    op.create_table(
        "notice_cursor",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column(
            "next_index",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice_cursor")),
    )


def downgrade() -> None:
    for table in ("notice_cursor", "deliveries", "webhooks"):
        op.drop_table(table)
