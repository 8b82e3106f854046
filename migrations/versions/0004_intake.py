"""Tables of the intake page.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "intake_challenges",
        sa.Column("ref", sa.String(length=32), nullable=False),
        sa.Column("asked", sa.LargeBinary(), nullable=True),
        sa.Column("mac", sa.String(length=64), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("case_ref", sa.String(length=36), nullable=True),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("ref", name="pk_intake_challenges"),
    )
    op.create_index("ix_intake_challenges_expires_at", "intake_challenges", ["expires_at"])
    op.create_table(
        "intake_codes",
        sa.Column("tag", sa.String(length=64), nullable=False),
        sa.Column("checked", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.Column("mac", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("tag", name="pk_intake_codes"),
    )
    op.create_index("ix_intake_codes_expires_at", "intake_codes", ["expires_at"])
    op.create_table(
        "intake_proofs",
        sa.Column("case_ref", sa.String(length=36), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=True),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("log_index", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("case_ref", name="pk_intake_proofs"),
    )


def downgrade() -> None:
    op.drop_table("intake_proofs")
    op.drop_table("intake_codes")
    op.drop_table("intake_challenges")
