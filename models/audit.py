"""Audits of an unlearning algorithm on a model's rows."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow


class Audit(SQLModel, table=True):
    """One audit at work, whose start names id, `created_at`, `config` and `method` in the log.

    What came out of it is in the signed report that the log names, and in no column. state:
    running, reported, failed or stopped, as the queue takes it; what is shown and cited is
    the log's. every_days: another is started at `due_at`, so many days after this one, 0 for
    none; it then moves on to that one.
    """

    __tablename__ = "audits"

    id: str = Field(primary_key=True, max_length=36)
    model_id: int = Field(foreign_key="models.id", index=True)
    method: str = Field(max_length=40)
    config: dict[str, str] = Field(sa_column=Column(JSON, nullable=False))
    parallel: int  # pairs that may be at work at once
    every_days: int
    due_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    state: str = Field(default="running", max_length=16, index=True)
    failure: str | None = Field(default=None, max_length=400)
    code_digest: str | None = Field(default=None, max_length=64)  # of the first worker's code
    method_version: str | None = Field(default=None, max_length=40)
    nudged_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class AuditPair(SQLModel, table=True):
    """One pair of models of an audit: who computes it, or what came out.

    A worker holds it while `lease_until` is in the future and commits its three numbers with
    `WHERE lease_token = mine`. The numbers are log-odds, hexadecimal to the last bit.
    """

    __tablename__ = "audit_pairs"

    audit_id: str = Field(primary_key=True, foreign_key="audits.id", max_length=36)
    pair: int = Field(primary_key=True)
    tries: int = 0
    lease_token: int = 0
    lease_until: datetime | None = Field(default=None, sa_type=UTCDateTime)
    before: str | None = Field(default=None, max_length=32)
    after: str | None = Field(default=None, max_length=32)
    retrained: str | None = Field(default=None, max_length=32)
    gave_way: bool | None = None
    version: int | None = None  # of the model, whose rows these were
    environment: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON))
    done_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    mac: str | None = Field(default=None, max_length=64)  # of what a worker recorded
