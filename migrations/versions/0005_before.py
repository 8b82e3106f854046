"""The statistics before an update, until the last of its requests is certified.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NAME = "fk_jobs_before_id"


def upgrade() -> None:
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.add_column(sa.Column("before_id", sa.String(length=36), nullable=True))
        batch_op.create_foreign_key(op.f(NAME), "artifacts", ["before_id"], ["id"])


def downgrade() -> None:
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.drop_constraint(op.f(NAME), type_="foreignkey")
        batch_op.drop_column("before_id")
