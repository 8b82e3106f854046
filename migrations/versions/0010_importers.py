"""Who imported an identity: they count as a submitter of the requests that rest on it.

Revision ID: 0010
Revises: 0009

For earlier identities the importer is unknown; they count as having come with their rows.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("people", sa.Column("imported_by", sa.String(length=80), nullable=True))


def downgrade() -> None:
    op.drop_column("people", "imported_by")
