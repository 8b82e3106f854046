"""Registered models and their versions: each erasure and each contribution creates one."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column, LargeBinary, UniqueConstraint
from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, UTCDateTime, utcnow


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
        # A job creates one version per attempt, however often it runs.
        UniqueConstraint("job_id", "attempt"),
    )

    id: int | None = Field(default=None, primary_key=True)
    model_id: int = Field(foreign_key="models.id", index=True)
    number: int
    job_id: str = Field(max_length=36)
    attempt: int = 1
    head_id: str = Field(foreign_key="artifacts.id", max_length=36)
    state_id: str = Field(foreign_key="artifacts.id", max_length=36)
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
