"""Masked rounds and their members.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

MESSAGES = ("advertise_id", "share_id", "masked_id", "confirm_id", "reveal_id")


def upgrade() -> None:
    op.create_table(
        "rounds",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("threshold", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=300), nullable=True),
        sa.Column("step_seconds", sa.Integer(), nullable=False),
        sa.Column("step_until", sa.DateTime(), nullable=False),
        sa.Column("requests", sa.LargeBinary(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=True),
        sa.Column("transcript_id", sa.String(length=36), nullable=True),
        sa.Column("counts_id", sa.String(length=36), nullable=True),
        sa.Column(
            "log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("closed_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_rounds_model_id")),
        sa.ForeignKeyConstraint(
            ["transcript_id"], ["artifacts.id"], name=op.f("fk_rounds_transcript_id")
        ),
        sa.ForeignKeyConstraint(
            ["counts_id"], ["artifacts.id"], name=op.f("fk_rounds_counts_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rounds")),
        sa.UniqueConstraint("job_id", name=op.f("uq_rounds_job_id")),
    )
    with op.batch_alter_table("rounds", schema=None) as batch_op:
        for column in ("model_id", "state", "transcript_id"):
            batch_op.create_index(batch_op.f(f"ix_rounds_{column}"), [column], unique=False)

    op.create_table(
        "round_members",
        sa.Column("round_id", sa.String(length=36), nullable=False),
        sa.Column("keyid", sa.String(length=128), nullable=False),
        sa.Column("client", sa.LargeBinary(), nullable=False),
        sa.Column("moved", sa.Integer(), nullable=False),
        sa.Column("statement", sa.Text(), nullable=True),
        *(sa.Column(name, sa.String(length=36), nullable=True) for name in MESSAGES),
        sa.ForeignKeyConstraint(
            ["round_id"], ["rounds.id"], name=op.f("fk_round_members_round_id")
        ),
        sa.ForeignKeyConstraint(
            ["keyid"], ["requester_keys.keyid"], name=op.f("fk_round_members_keyid")
        ),
        *(
            sa.ForeignKeyConstraint(
                [name], ["artifacts.id"], name=op.f(f"fk_round_members_{name}")
            )
            for name in MESSAGES
        ),
        sa.PrimaryKeyConstraint("round_id", "keyid", name=op.f("pk_round_members")),
    )
    with op.batch_alter_table("round_members", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_round_members_keyid"), ["keyid"], unique=False)


def downgrade() -> None:
    op.drop_table("round_members")
    op.drop_table("rounds")
