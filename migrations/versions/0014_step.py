"""A job's step, and a version's, get a name of their own: an attempt has another number.

Revision ID: 0014
Revises: 0013
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

TABLES = ("jobs", "model_versions")


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN attempt TO step")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN step TO attempt")
