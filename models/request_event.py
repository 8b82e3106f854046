"""The opening of each log entry about a request: what the commitment in the leaf hides."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel

from models.types import UTCDateTime


class RequestEvent(SQLModel, table=True):
    """The committed event. Erasable, with its request's key, at the end of retention."""

    __tablename__ = "request_events"

    log_index: int = Field(primary_key=True)
    request_id: str = Field(foreign_key="erasure_requests.id", max_length=36, index=True)
    event: str = Field(max_length=60)
    at: datetime = Field(sa_type=UTCDateTime)
    payload: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
