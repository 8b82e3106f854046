"""Questions to clients whose rows never left them.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INDEXED = ("model_id", "request_id", "state", "subject_id")


def upgrade() -> None:
    op.create_table(
        "releases",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("subject_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("upload_id", sa.String(length=36), nullable=True),
        sa.Column("body_digest", sa.String(length=64), nullable=True),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.Column("asked_at", sa.DateTime(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("escalates_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_releases_model_id")),
        sa.ForeignKeyConstraint(
            ["request_id"], ["erasure_requests.id"], name=op.f("fk_releases_request_id")
        ),
        sa.ForeignKeyConstraint(
            ["subject_id"], ["subjects.id"], name=op.f("fk_releases_subject_id")
        ),
        sa.ForeignKeyConstraint(
            ["upload_id"], ["artifacts.id"], name=op.f("fk_releases_upload_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_releases")),
        sa.UniqueConstraint(
            "request_id", "subject_id", name=op.f("uq_releases_request_id_subject_id")
        ),
    )
    with op.batch_alter_table("releases", schema=None) as batch_op:
        for column in INDEXED:
            batch_op.create_index(batch_op.f(f"ix_releases_{column}"), [column], unique=False)


def downgrade() -> None:
    op.drop_table("releases")
