"""Audits of an unlearning algorithm on a model's rows."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow


class Audit(SQLModel, table=True):
    """One audit. Its start in the log commits to id, `created_at`, `config` and `method`.

    The result is in the signed report that the log names, not in a column. state: running,
    reported, failed or stopped, for the queue; the log's state is what is shown and cited.
    every_days: the next audit starts at `due_at`, this many days after this one, and takes the
    schedule over; 0 for none.
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
    """One pair of models of an audit: its lease, or its result.

    A worker holds it while `lease_until` is in the future and commits its three numbers with
    `WHERE lease_token = mine`. The numbers are log-odds, in exact hexadecimal notation.
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
    version: int | None = None  # of the model whose rows were used
    environment: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON))
    done_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    mac: str | None = Field(default=None, max_length=64)  # of the worker's result
