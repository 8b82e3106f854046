"""An index of open requests by key: how many a key has is counted at each submission.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INDEX, TABLE = "ix_erasure_requests_open", "erasure_requests"
OPEN = "state NOT IN ('certified', 'failed', 'refused', 'withdrawn')"


def upgrade() -> None:
    listed = sa.text(OPEN)
    op.create_index(
        INDEX, TABLE, ["keyid", "state"], sqlite_where=listed, postgresql_where=listed
    )


def downgrade() -> None:
    op.drop_index(INDEX, TABLE)
