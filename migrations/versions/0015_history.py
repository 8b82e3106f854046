"""Indexes for what workers and scrapes ask: what it costs does not grow with what is over.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

OPEN = "done_at IS NULL"
WHOLE = {
    "ix_certificates_result": ("certificates", "result"),
    "ix_model_versions_head_id": ("model_versions", "head_id"),
    "ix_model_versions_state_id": ("model_versions", "state_id"),
}


def upgrade() -> None:
    unfinished = sa.text(OPEN)
    op.create_index(
        "ix_jobs_open",
        "jobs",
        ["model_id", "seq"],
        sqlite_where=unfinished,
        postgresql_where=unfinished,
    )
    for name, (table, column) in WHOLE.items():
        op.create_index(name, table, [column])


def downgrade() -> None:
    for name, (table, _) in WHOLE.items():
        op.drop_index(name, table)
    op.drop_index("ix_jobs_open", "jobs")
