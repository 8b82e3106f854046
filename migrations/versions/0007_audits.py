"""Audits of unlearning algorithms, and their pairs of models.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

import models.types

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audits",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("parallel", sa.Integer(), nullable=False),
        sa.Column("every_days", sa.Integer(), nullable=False),
        sa.Column("due_at", models.types.UTCDateTime(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("failure", sa.String(length=400), nullable=True),
        sa.Column("code_digest", sa.String(length=64), nullable=True),
        sa.Column("method_version", sa.String(length=40), nullable=True),
        sa.Column("nudged_at", models.types.UTCDateTime(), nullable=False),
        sa.Column("created_at", models.types.UTCDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_audits_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audits")),
    )
    with op.batch_alter_table("audits") as batch_op:
        batch_op.create_index(op.f("ix_audits_model_id"), ["model_id"], unique=False)
        batch_op.create_index(op.f("ix_audits_state"), ["state"], unique=False)
    op.create_table(
        "audit_pairs",
        sa.Column("audit_id", sa.String(length=36), nullable=False),
        sa.Column("pair", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("lease_until", models.types.UTCDateTime(), nullable=True),
        sa.Column("before", sa.String(length=32), nullable=True),
        sa.Column("after", sa.String(length=32), nullable=True),
        sa.Column("retrained", sa.String(length=32), nullable=True),
        sa.Column("gave_way", sa.Boolean(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("environment", sa.JSON(), nullable=True),
        sa.Column("done_at", models.types.UTCDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["audit_id"], ["audits.id"], name=op.f("fk_audit_pairs_audit_id")
        ),
        sa.PrimaryKeyConstraint("audit_id", "pair", name=op.f("pk_audit_pairs")),
    )


def downgrade() -> None:
    op.drop_table("audit_pairs")
    op.drop_table("audits")
