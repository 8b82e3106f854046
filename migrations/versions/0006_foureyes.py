"""Who issued a code of the intake page.

Revision ID: 0006
Revises: 0005

Codes from before are deleted: the log could not say who issued them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DELETE FROM intake_codes")
    with op.batch_alter_table("intake_codes") as table:
        table.add_column(sa.Column("issued_by", sa.LargeBinary(), nullable=False))
    with op.batch_alter_table("intake_proofs") as table:
        table.add_column(sa.Column("issued_by", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("intake_proofs") as table:
        table.drop_column("issued_by")
    with op.batch_alter_table("intake_codes") as table:
        table.drop_column("issued_by")
