"""Tables.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MESSAGES = ("advertise_id", "share_id", "masked_id", "confirm_id", "reveal_id")
INDEXED = {
    "artifacts": ("digest", "shredded_at"),
    "log_entries": ("day", "event", "kind", "ref"),
    "used_nonces": ("expires_at",),
    "contributions": ("model_id",),
    "erasure_requests": ("case_ref", "received_at"),
    "model_versions": ("model_id",),
    "subjects": ("client_tag", "model_id", "subject_tag"),
    "feature_blocks": ("model_id",),
    "jobs": ("done_at", "model_id"),
    "records": ("subject_id",),
    "request_events": ("request_id",),
    "tombstones": ("request_id", "subject_id"),
    "releases": ("model_id", "request_id", "state", "subject_id"),
    "rounds": ("model_id", "state", "transcript_id"),
    "round_members": ("keyid",),
    "silo_tasks": ("job_id",),
    "audits": ("model_id", "state"),
    "cases": ("received_at",),
}


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("shredded_at", sa.DateTime(), nullable=True),
        sa.Column("unlinked_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
    )
    owed = sa.text("wrapped_key IS NULL AND unlinked_at IS NULL")
    op.create_index(
        "ix_artifacts_owed", "artifacts", ["id"], sqlite_where=owed, postgresql_where=owed
    )
    op.create_index("ix_artifacts_kind_shredded_at", "artifacts", ["kind", "shredded_at"])
    op.create_table(
        "bearer_tokens",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("revoked_at", sa.DateTime(), nullable=True),
        sa.Column("mac", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_bearer_tokens")),
    )
    op.create_table(
        "log_checkpoints",
        sa.Column(
            "size",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("signed_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("size", name=op.f("pk_log_checkpoints")),
    )
    op.create_table(
        "log_entries",
        sa.Column(
            "index",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("leaf", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("event", sa.String(length=131), nullable=True),
        sa.Column("ref", sa.String(length=128), nullable=True),
        sa.Column("day", sa.String(length=10), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("index", name=op.f("pk_log_entries")),
    )
    op.create_table(
        "log_nodes",
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("index", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("level", "index", name=op.f("pk_log_nodes")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("ref", sa.String(length=80), nullable=False),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("classes", sa.JSON(), nullable=False),
        sa.Column("extractor", sa.JSON(), nullable=False),
        sa.Column("decide", sa.String(length=16), nullable=False),
        sa.Column("cooling_off", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("failure", sa.String(), nullable=True),
        sa.Column("current_version", sa.Integer(), nullable=True),
        sa.Column("tombstone_key", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("ref", name=op.f("uq_models_ref")),
    )
    op.create_table(
        "requester_keys",
        sa.Column("keyid", sa.String(length=128), nullable=False),
        sa.Column("algorithm", sa.String(length=32), nullable=False),
        sa.Column("public_key", sa.String(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("client", sa.LargeBinary(), nullable=True),
        sa.Column("subject", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("revoked_at", sa.DateTime(), nullable=True),
        sa.Column("mac", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("keyid", name=op.f("pk_requester_keys")),
    )
    op.create_table(
        "used_nonces",
        sa.Column("keyid", sa.String(length=128), nullable=False),
        sa.Column("nonce", sa.String(length=128), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("keyid", "nonce", name=op.f("pk_used_nonces")),
    )
    op.create_table(
        "contributions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("keyid", sa.String(length=128), nullable=True),
        sa.Column("upload_id", sa.String(length=36), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("failure", sa.String(), nullable=True),
        sa.Column("saturated", sa.Integer(), nullable=False),
        sa.Column(
            "log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("idempotency_key", sa.String(length=64), nullable=True),
        sa.Column("body_digest", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_contributions_model_id")
        ),
        sa.ForeignKeyConstraint(
            ["upload_id"], ["artifacts.id"], name=op.f("fk_contributions_upload_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_contributions")),
        sa.UniqueConstraint(
            "keyid",
            "idempotency_key",
            name=op.f("uq_contributions_keyid_idempotency_key"),
        ),
    )
    op.create_table(
        "erasure_requests",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("ref", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("keyid", sa.String(length=128), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("scope", sa.LargeBinary(), nullable=False),
        sa.Column("regulation", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("event_key", sa.LargeBinary(), nullable=False),
        sa.Column(
            "log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("idempotency_key", sa.String(length=64), nullable=True),
        sa.Column("body_digest", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.DateTime(), nullable=False),
        sa.Column("forgotten_at", sa.DateTime(), nullable=True),
        sa.Column("due_at", sa.DateTime(), nullable=False),
        sa.Column("case_ref", sa.String(length=36), nullable=True),
        sa.Column("held_until", sa.DateTime(), nullable=True),
        sa.Column("paused_at", sa.DateTime(), nullable=True),
        sa.Column("assignee", sa.String(length=80), nullable=True),
        sa.Column("reminded", sa.Integer(), nullable=True),
        sa.Column("notes", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["keyid"], ["requester_keys.keyid"], name=op.f("fk_erasure_requests_keyid")
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_erasure_requests_model_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasure_requests")),
        sa.UniqueConstraint(
            "keyid", "idempotency_key", name=op.f("uq_erasure_requests_keyid_idempotency_key")
        ),
        sa.UniqueConstraint("ref", name=op.f("uq_erasure_requests_ref")),
    )
    queue = ["state", "due_at", "ref"]
    op.create_index("ix_erasure_requests_state_due_at_ref", "erasure_requests", queue)
    op.create_index(
        "ix_erasure_requests_model_id_state_due_at_ref",
        "erasure_requests",
        ["model_id", *queue],
    )
    op.create_table(
        "model_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("head_id", sa.String(length=36), nullable=False),
        sa.Column("state_id", sa.String(length=36), nullable=False),
        sa.Column("head_digest", sa.String(length=64), nullable=False),
        sa.Column("statistics_digest", sa.String(length=64), nullable=False),
        sa.Column("retained_root", sa.LargeBinary(), nullable=False),
        sa.Column("retained_count", sa.Integer(), nullable=False),
        sa.Column("held_out", sa.JSON(), nullable=True),
        sa.Column(
            "log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("withdrawn_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["head_id"], ["artifacts.id"], name=op.f("fk_model_versions_head_id")
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id")
        ),
        sa.ForeignKeyConstraint(
            ["state_id"], ["artifacts.id"], name=op.f("fk_model_versions_state_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("job_id", "attempt", name=op.f("uq_model_versions_job_id_attempt")),
        sa.UniqueConstraint(
            "model_id", "number", name=op.f("uq_model_versions_model_id_number")
        ),
    )
    op.create_table(
        "subjects",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("client", sa.LargeBinary(), nullable=True),
        sa.Column("subject", sa.LargeBinary(), nullable=True),
        sa.Column("client_tag", sa.String(length=64), nullable=False),
        sa.Column("subject_tag", sa.String(length=64), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=True),
        sa.Column("key_generation", sa.Integer(), nullable=False),
        sa.Column("shredded_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_subjects_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subjects")),
        sa.UniqueConstraint(
            "model_id",
            "client_tag",
            "subject_tag",
            name=op.f("uq_subjects_model_id_client_tag_subject_tag"),
        ),
    )
    op.create_table(
        "certificates",
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("envelope", sa.JSON(), nullable=False),
        sa.Column("issuer_keyid", sa.String(length=80), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column(
            "log_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("issued_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["erasure_requests.id"], name=op.f("fk_certificates_request_id")
        ),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_certificates")),
        sa.UniqueConstraint("id", name=op.f("uq_certificates_id")),
        sa.UniqueConstraint("log_index", name=op.f("uq_certificates_log_index")),
    )
    op.create_table(
        "feature_blocks",
        sa.Column("subject_id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("key_generation", sa.Integer(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_feature_blocks_model_id")
        ),
        sa.ForeignKeyConstraint(
            ["subject_id"], ["subjects.id"], name=op.f("fk_feature_blocks_subject_id")
        ),
        sa.PrimaryKeyConstraint("subject_id", name=op.f("pk_feature_blocks")),
    )
    op.create_table(
        "jobs",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=True),
        sa.Column("contribution_id", sa.String(length=36), nullable=True),
        sa.Column("call_id", sa.String(length=36), nullable=True),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(length=200), nullable=True),
        sa.Column("draft_id", sa.String(length=36), nullable=True),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("done_at", sa.DateTime(), nullable=True),
        sa.Column("before_id", sa.String(length=36), nullable=True),
        sa.Column("checkpoint_id", sa.String(length=36), nullable=True),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("phase_done", sa.Integer(), nullable=True),
        sa.Column("phase_total", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["before_id"], ["artifacts.id"], name=op.f("fk_jobs_before_id")
        ),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"], ["artifacts.id"], name=op.f("fk_jobs_checkpoint_id")
        ),
        sa.ForeignKeyConstraint(
            ["contribution_id"], ["contributions.id"], name=op.f("fk_jobs_contribution_id")
        ),
        sa.ForeignKeyConstraint(["draft_id"], ["artifacts.id"], name=op.f("fk_jobs_draft_id")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_jobs_model_id")),
        sa.ForeignKeyConstraint(
            ["request_id"], ["erasure_requests.id"], name=op.f("fk_jobs_request_id")
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_jobs")),
        sa.UniqueConstraint("contribution_id", name=op.f("uq_jobs_contribution_id")),
        sa.UniqueConstraint("id", name=op.f("uq_jobs_id")),
        sa.UniqueConstraint("request_id", name=op.f("uq_jobs_request_id")),
    )
    op.create_table(
        "records",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("subject_id", sa.Integer(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("commitment", sa.LargeBinary(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("claimed_by", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(
            ["claimed_by"], ["erasure_requests.id"], name=op.f("fk_records_claimed_by")
        ),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_records_model_id")),
        sa.ForeignKeyConstraint(
            ["subject_id"], ["subjects.id"], name=op.f("fk_records_subject_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_records")),
        sa.UniqueConstraint("model_id", "record", name=op.f("uq_records_model_id_record")),
    )
    op.create_index("ix_records_model_id_commitment", "records", ["model_id", "commitment"])
    claimed = sa.text("claimed_by IS NOT NULL")
    op.create_index(
        "ix_records_claimed_by",
        "records",
        ["claimed_by"],
        sqlite_where=claimed,
        postgresql_where=claimed,
    )
    op.create_table(
        "retained_pages",
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("prefix", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_retained_pages_model_id")
        ),
        sa.PrimaryKeyConstraint("model_id", "prefix", name=op.f("pk_retained_pages")),
    )
    op.create_table(
        "request_events",
        sa.Column(
            "log_index",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("event", sa.String(length=131), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["erasure_requests.id"], name=op.f("fk_request_events_request_id")
        ),
        sa.PrimaryKeyConstraint("log_index", name=op.f("pk_request_events")),
    )
    op.create_table(
        "tombstones",
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("tag", sa.LargeBinary(), nullable=False),
        sa.Column("subject_id", sa.Integer(), nullable=True),
        sa.Column("request_id", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_tombstones_model_id")
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["erasure_requests.id"], name=op.f("fk_tombstones_request_id")
        ),
        sa.ForeignKeyConstraint(
            ["subject_id"], ["subjects.id"], name=op.f("fk_tombstones_subject_id")
        ),
        sa.PrimaryKeyConstraint("model_id", "tag", name=op.f("pk_tombstones")),
    )
    op.create_table(
        "verifications",
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("evidence_id", sa.String(length=36), nullable=False),
        sa.Column("verified_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["evidence_id"], ["artifacts.id"], name=op.f("fk_verifications_evidence_id")
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["erasure_requests.id"], name=op.f("fk_verifications_request_id")
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_verifications_version_id")
        ),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_verifications")),
    )
    op.create_index(op.f("ix_verifications_version_id"), "verifications", ["version_id"])
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
    op.create_table(
        "silo_tasks",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("queue", sa.String(length=40), nullable=False),
        sa.Column("task_id", sa.String(length=36), nullable=False),
        sa.Column("answer_id", sa.String(length=36), nullable=True),
        sa.Column("fault", sa.String(length=80), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("taken_at", sa.DateTime(), nullable=True),
        sa.Column("answered_at", sa.DateTime(), nullable=True),
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
    op.create_table(
        "audits",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("parallel", sa.Integer(), nullable=False),
        sa.Column("every_days", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("failure", sa.String(length=400), nullable=True),
        sa.Column("code_digest", sa.String(length=64), nullable=True),
        sa.Column("method_version", sa.String(length=40), nullable=True),
        sa.Column("nudged_at", sa.DateTime(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_audits_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audits")),
    )
    op.create_table(
        "audit_pairs",
        sa.Column("audit_id", sa.String(length=36), nullable=False),
        sa.Column("pair", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(), nullable=True),
        sa.Column("before", sa.String(length=32), nullable=True),
        sa.Column("after", sa.String(length=32), nullable=True),
        sa.Column("retrained", sa.String(length=32), nullable=True),
        sa.Column("gave_way", sa.Boolean(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("environment", sa.JSON(), nullable=True),
        sa.Column("done_at", sa.DateTime(), nullable=True),
        sa.Column("mac", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(
            ["audit_id"], ["audits.id"], name=op.f("fk_audit_pairs_audit_id")
        ),
        sa.PrimaryKeyConstraint("audit_id", "pair", name=op.f("pk_audit_pairs")),
    )
    op.create_table(
        "people",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=True),
        sa.Column("sha256", sa.LargeBinary(), nullable=True),
        sa.Column("sha1", sa.LargeBinary(), nullable=True),
        sa.Column("md5", sa.LargeBinary(), nullable=True),
        sa.Column("request_id", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_people_model_id")),
        sa.ForeignKeyConstraint(
            ["request_id"], ["erasure_requests.id"], name=op.f("fk_people_request_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_people")),
    )
    for column in ("record", "sha256", "sha1", "md5"):
        op.create_index(f"ix_people_model_id_{column}", "people", ["model_id", column])
    op.create_table(
        "people_sums",
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("sums", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_people_sums_model_id")
        ),
        sa.PrimaryKeyConstraint("model_id", name=op.f("pk_people_sums")),
    )
    op.create_table(
        "cases",
        sa.Column("ref", sa.String(length=36), nullable=False),
        sa.Column("opened_by", sa.String(length=80), nullable=False),
        sa.Column("regulation", sa.String(length=16), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("parts", sa.LargeBinary(), nullable=False),
        sa.Column("ticket", sa.LargeBinary(), nullable=True),
        sa.Column("checked", sa.LargeBinary(), nullable=True),
        sa.Column("contact", sa.LargeBinary(), nullable=True),
        sa.Column("received_at", sa.DateTime(), nullable=False),
        sa.Column("due_at", sa.DateTime(), nullable=False),
        sa.Column("closed_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("ref", name=op.f("pk_cases")),
    )
    op.create_index("ix_cases_closed_at_due_at_ref", "cases", ["closed_at", "due_at", "ref"])
    for table, columns in INDEXED.items():
        for column in columns:
            op.create_index(op.f(f"ix_{table}_{column}"), table, [column])


def downgrade() -> None:
    for table in (
        "cases",
        "people_sums",
        "people",
        "audit_pairs",
        "audits",
        "silo_tasks",
        "round_members",
        "rounds",
        "releases",
        "verifications",
        "tombstones",
        "request_events",
        "retained_pages",
        "records",
        "jobs",
        "feature_blocks",
        "certificates",
        "subjects",
        "model_versions",
        "erasure_requests",
        "contributions",
        "used_nonces",
        "requester_keys",
        "models",
        "log_nodes",
        "log_entries",
        "log_checkpoints",
        "bearer_tokens",
        "artifacts",
    ):
        op.drop_table(table)
