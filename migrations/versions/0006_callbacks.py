"""Addresses that are told of one request, and whose callbacks a delivery belongs to.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "callbacks",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("ref", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("request", sa.String(length=36), nullable=False),
        sa.Column("url", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("told", sa.String(length=24), nullable=True),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", "ref", name=op.f("pk_callbacks")),
    )
    op.create_index(op.f("ix_callbacks_owner"), "callbacks", ["owner"])
    op.create_index(op.f("ix_callbacks_ref"), "callbacks", ["ref"])
    op.add_column("deliveries", sa.Column("lane", sa.String(length=40), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("deliveries") as batch:
        batch.drop_column("lane")
    op.drop_table("callbacks")
