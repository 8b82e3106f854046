"""Registered models, their versions and stored blobs, and the rows that clients add."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Index, LargeBinary, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, SealedText, Tagged, UTCDateTime, utcnow


class Model(SQLModel, table=True):
    """A registered model. `state`: registered, ready, failed, quarantined or deleted."""

    __tablename__ = "models"

    id: int | None = Field(default=None, primary_key=True)
    ref: str = Field(unique=True, max_length=80)
    method: str = Field(max_length=40)  # default method for requests that name none
    config: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    classes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    extractor: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    # `review` (an officer approves requests) or `at-once`; the cooling-off time in seconds.
    decide: str = Field(default="review", max_length=16)
    cooling_off: int = 0
    state: str = Field(default="registered", max_length=16)
    failure: str | None = None
    current_version: int | None = None
    # Sealed under the root secret; tags erased record ids, and the noise key derives from it.
    tombstone_key: bytes
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class ModelVersion(SQLModel, table=True):
    """A version by its artifacts. A withdrawn version's artifacts are shredded."""

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        # A job creates one version per step, however often it runs.
        # SQLite renames no constraint without copying the table, to which judgements refer.
        UniqueConstraint("job_id", "step", name="uq_model_versions_job_id_attempt"),
    )

    id: int | None = Field(default=None, primary_key=True)
    model_id: int = Field(foreign_key="models.id", index=True)
    number: int
    job_id: str = Field(max_length=36)
    step: int = 1  # of the job: `Job.step`
    head_id: str = Field(foreign_key="artifacts.id", max_length=36, index=True)
    state_id: str = Field(foreign_key="artifacts.id", max_length=36, index=True)
    head_digest: str = Field(max_length=64)
    statistics_digest: str = Field(max_length=64)
    retained_root: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    retained_count: int
    # The measurement on the model's held-out rows; the log has its digest.
    held_out: dict[str, Any] | None = Field(
        default=None, sa_column=Column(JSON(none_as_null=True))
    )
    log_index: int = Field(sa_type=LogNumber)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    withdrawn_at: datetime | None = Field(default=None, sa_type=UTCDateTime)


OWED = "wrapped_key IS NULL AND unlinked_at IS NULL"


class Artifact(SQLModel, table=True):
    """A blob sealed under its own key; without `wrapped_key` the file cannot be opened.

    Shredding is therefore one UPDATE, atomic with the rest of the transaction; the file is
    removed afterwards. A row with neither `wrapped_key` nor `unlinked_at` still has its file.
    """

    __tablename__ = "artifacts"
    __table_args__ = (
        # Holds only rows shredded just now, however many artifacts there are.
        Index("ix_artifacts_owed", "id", sqlite_where=text(OWED), postgresql_where=text(OWED)),
        Index("ix_artifacts_kind_shredded_at", "kind", "shredded_at"),
    )

    id: str = Field(primary_key=True, max_length=36)
    kind: str = Field(max_length=24)  # head | state | evidence | scores | upload and others
    # Hex SHA-256 of the plaintext; empty once what a client sent is destroyed.
    digest: str = Field(max_length=64, index=True)
    size: int = Field(sa_type=BigInteger)  # bytes of the plaintext
    wrapped_key: bytes | None = None
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    shredded_at: datetime | None = Field(default=None, sa_type=UTCDateTime, index=True)
    unlinked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)  # file removed


class Contribution(SQLModel, table=True):
    """An upload waiting to be learned, or learned. `state`: received, learned or failed."""

    __tablename__ = "contributions"
    __table_args__ = (UniqueConstraint("keyid", "idempotency_key"),)

    id: str = Field(primary_key=True, max_length=36)
    model_id: int = Field(foreign_key="models.id", index=True)
    keyid: str | None = Field(default=None, max_length=128)  # None: the registration itself
    upload_id: str = Field(foreign_key="artifacts.id", max_length=36)
    rows: int
    state: str = Field(default="received", max_length=16)
    failure: str | None = None
    saturated: int = 0  # codes clipped by the quantiser
    log_index: int = Field(sa_type=LogNumber)
    idempotency_key: str | None = Field(default=None, sa_type=Tagged("idempotency-key"))
    # Hex SHA-256 of the checked upload.
    body_digest: str = Field(sa_type=SealedText("contributions.body_digest"))
    received_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
