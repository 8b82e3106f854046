"""Networks: tasks on their way to silos, and checkpoints of long trainings.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

import models.types

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NAME = "fk_jobs_checkpoint_id"


def upgrade() -> None:
    op.create_table(
        "silo_tasks",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("queue", sa.String(length=40), nullable=False),
        sa.Column("task_id", sa.String(length=36), nullable=False),
        sa.Column("answer_id", sa.String(length=36), nullable=True),
        sa.Column("fault", sa.String(length=80), nullable=True),
        sa.Column("created_at", models.types.UTCDateTime(), nullable=False),
        sa.Column("taken_at", models.types.UTCDateTime(), nullable=True),
        sa.Column("answered_at", models.types.UTCDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_silo_tasks_model_id")
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["artifacts.id"], name=op.f("fk_silo_tasks_task_id")
        ),
        sa.ForeignKeyConstraint(
            ["answer_id"], ["artifacts.id"], name=op.f("fk_silo_tasks_answer_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silo_tasks")),
    )
    with op.batch_alter_table("silo_tasks") as batch_op:
        batch_op.create_index(op.f("ix_silo_tasks_job_id"), ["job_id"], unique=False)
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.add_column(sa.Column("checkpoint_id", sa.String(length=36), nullable=True))
        batch_op.create_foreign_key(op.f(NAME), "artifacts", ["checkpoint_id"], ["id"])


def downgrade() -> None:
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.drop_constraint(op.f(NAME), type_="foreignkey")
        batch_op.drop_column("checkpoint_id")
    op.drop_table("silo_tasks")
