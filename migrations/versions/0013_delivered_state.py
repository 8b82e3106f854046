"""A callback's last delivered state gets the name that the API shows it under.

Revision ID: 0013
Revises: 0012
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE callbacks RENAME COLUMN told TO delivered_state")


def downgrade() -> None:
    op.execute("ALTER TABLE callbacks RENAME COLUMN delivered_state TO told")
