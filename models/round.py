"""Masked rounds: clients add to a model, and release from it, so that only the sum is seen."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel

from models.sealed import SealedJSON
from models.types import LogNumber, UTCDateTime, utcnow


class Round(SQLModel, table=True):
    """One round of secure aggregation over the members of `round_members`.

    `state`: advertise, share, masked, confirm, reveal (the step that is open), summing (a
    worker's turn), done or failed. `transcript_id` is the sealed artifact that the verifier
    sums again, shredded with the last certificate that rests on it; `counts_id` is that of
    the model's label counts after the round.
    """

    __tablename__ = "rounds"

    id: str = Field(primary_key=True, max_length=36)
    model_id: int = Field(foreign_key="models.id", index=True)
    plan: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    threshold: int
    state: str = Field(default="advertise", max_length=16, index=True)
    reason: str | None = Field(default=None, max_length=300)
    step_seconds: int
    step_until: datetime = Field(sa_type=UTCDateTime)
    # What is released: the records of each request, by its id, as they were at the opening.
    requests: dict[str, list[str]] = Field(
        sa_column=Column(SealedJSON("rounds.requests"), nullable=False)
    )
    warnings: list[str] = Field(sa_column=Column(JSON, nullable=False))
    job_id: str | None = Field(default=None, unique=True, max_length=36)
    transcript_id: str | None = Field(
        default=None, foreign_key="artifacts.id", max_length=36, index=True
    )
    counts_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    log_index: int = Field(sa_type=LogNumber)  # of round.opened
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    closed_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
