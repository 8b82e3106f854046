"""The MAC of what a worker recorded of an audit's pair.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("audit_pairs") as batch_op:
        batch_op.add_column(sa.Column("mac", sa.String(length=64), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("audit_pairs") as batch_op:
        batch_op.drop_column("mac")
