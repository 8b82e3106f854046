"""Requests to clients for the statistics of rows to be erased that only they have."""

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow


class Release(SQLModel, table=True):
    """A request to one client for the statistics of the claimed records of one of its blocks.

    `state`: open (the client has not answered), answered, dropped (an operator decided to
    remove the whole block instead), done. `records.claimed_by` marks the records.
    """

    __tablename__ = "releases"
    __table_args__ = (UniqueConstraint("request_id", "subject_id"),)

    id: str = Field(primary_key=True, max_length=36)
    request_id: str = Field(foreign_key="erasure_requests.id", max_length=36, index=True)
    model_id: int = Field(foreign_key="models.id", index=True)
    subject_id: int = Field(foreign_key="subjects.id", index=True)
    state: str = Field(default="open", max_length=16, index=True)
    upload_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    body_digest: str | None = Field(default=None, max_length=64)
    asked: int = 0  # how often the client fetched it
    asked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)  # the last time
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    # An operator decides if the client has not answered by then.
    escalates_at: datetime = Field(sa_type=UTCDateTime)
