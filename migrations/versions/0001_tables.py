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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
    )
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_artifacts_digest"), ["digest"], unique=False)

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
    with op.batch_alter_table("log_entries", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_log_entries_day"), ["day"], unique=False)
        batch_op.create_index(batch_op.f("ix_log_entries_event"), ["event"], unique=False)
        batch_op.create_index(batch_op.f("ix_log_entries_kind"), ["kind"], unique=False)
        batch_op.create_index(batch_op.f("ix_log_entries_ref"), ["ref"], unique=False)

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
    with op.batch_alter_table("used_nonces", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_used_nonces_expires_at"), ["expires_at"], unique=False
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
    with op.batch_alter_table("contributions", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_contributions_model_id"), ["model_id"], unique=False
        )

    op.create_table(
        "erasure_requests",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("ref", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("keyid", sa.String(length=128), nullable=False),
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
    with op.batch_alter_table("erasure_requests", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_erasure_requests_due_at"), ["due_at"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_erasure_requests_model_id"), ["model_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_erasure_requests_received_at"), ["received_at"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_erasure_requests_state"), ["state"], unique=False)

    op.create_table(
        "model_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("head_id", sa.String(length=36), nullable=False),
        sa.Column("state_id", sa.String(length=36), nullable=False),
        sa.Column("head_digest", sa.String(length=64), nullable=False),
        sa.Column("statistics_digest", sa.String(length=64), nullable=False),
        sa.Column("retained_root", sa.LargeBinary(), nullable=False),
        sa.Column("retained_count", sa.Integer(), nullable=False),
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
        sa.UniqueConstraint("job_id", "rung", name=op.f("uq_model_versions_job_id_rung")),
        sa.UniqueConstraint(
            "model_id", "number", name=op.f("uq_model_versions_model_id_number")
        ),
    )
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_model_versions_model_id"), ["model_id"], unique=False
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
    with op.batch_alter_table("subjects", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_subjects_client_tag"), ["client_tag"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_subjects_model_id"), ["model_id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_subjects_subject_tag"), ["subject_tag"], unique=False
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
    with op.batch_alter_table("feature_blocks", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_feature_blocks_model_id"), ["model_id"], unique=False
        )

    op.create_table(
        "jobs",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=True),
        sa.Column("contribution_id", sa.String(length=36), nullable=True),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(length=200), nullable=True),
        sa.Column("draft_id", sa.String(length=36), nullable=True),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("done_at", sa.DateTime(), nullable=True),
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
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_done_at"), ["done_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_model_id"), ["model_id"], unique=False)

    op.create_table(
        "records",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("subject_id", sa.Integer(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("commitment", sa.LargeBinary(), nullable=False),
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
    with op.batch_alter_table("records", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_records_claimed_by"), ["claimed_by"], unique=False)
        batch_op.create_index(batch_op.f("ix_records_model_id"), ["model_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_records_subject_id"), ["subject_id"], unique=False)

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
    with op.batch_alter_table("request_events", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_request_events_request_id"), ["request_id"], unique=False
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
    with op.batch_alter_table("tombstones", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_tombstones_request_id"), ["request_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_tombstones_subject_id"), ["subject_id"], unique=False
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


def downgrade() -> None:
    op.drop_table("verifications")
    with op.batch_alter_table("tombstones", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tombstones_subject_id"))
        batch_op.drop_index(batch_op.f("ix_tombstones_request_id"))

    op.drop_table("tombstones")
    with op.batch_alter_table("request_events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_request_events_request_id"))

    op.drop_table("request_events")
    with op.batch_alter_table("records", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_records_subject_id"))
        batch_op.drop_index(batch_op.f("ix_records_model_id"))
        batch_op.drop_index(batch_op.f("ix_records_claimed_by"))

    op.drop_table("records")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_model_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_done_at"))

    op.drop_table("jobs")
    with op.batch_alter_table("feature_blocks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_feature_blocks_model_id"))

    op.drop_table("feature_blocks")
    op.drop_table("certificates")
    with op.batch_alter_table("subjects", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_subjects_subject_tag"))
        batch_op.drop_index(batch_op.f("ix_subjects_model_id"))
        batch_op.drop_index(batch_op.f("ix_subjects_client_tag"))

    op.drop_table("subjects")
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_model_versions_model_id"))

    op.drop_table("model_versions")
    with op.batch_alter_table("erasure_requests", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_erasure_requests_state"))
        batch_op.drop_index(batch_op.f("ix_erasure_requests_received_at"))
        batch_op.drop_index(batch_op.f("ix_erasure_requests_model_id"))
        batch_op.drop_index(batch_op.f("ix_erasure_requests_due_at"))

    op.drop_table("erasure_requests")
    with op.batch_alter_table("contributions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_contributions_model_id"))

    op.drop_table("contributions")
    with op.batch_alter_table("used_nonces", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_used_nonces_expires_at"))

    op.drop_table("used_nonces")
    op.drop_table("requester_keys")
    op.drop_table("models")
    op.drop_table("log_nodes")
    with op.batch_alter_table("log_entries", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_log_entries_ref"))
        batch_op.drop_index(batch_op.f("ix_log_entries_kind"))
        batch_op.drop_index(batch_op.f("ix_log_entries_event"))
        batch_op.drop_index(batch_op.f("ix_log_entries_day"))

    op.drop_table("log_entries")
    op.drop_table("log_checkpoints")
    op.drop_table("bearer_tokens")
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_artifacts_digest"))

    op.drop_table("artifacts")
