"""How far the work on a job's present stage is.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.add_column(sa.Column("phase", sa.String(length=16), nullable=True))
        batch_op.add_column(sa.Column("phase_done", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("phase_total", sa.Integer(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.drop_column("phase_total")
        batch_op.drop_column("phase_done")
        batch_op.drop_column("phase")
