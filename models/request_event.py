"""The opening of each log entry about a request: what the commitment in the leaf hides."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column
from sqlmodel import Field, SQLModel

from models.database.sealed import SealedJSON
from models.database.types import LogNumber, UTCDateTime


class RequestEvent(SQLModel, table=True):
    """The committed event. Erasable, with its request's key, at the end of retention."""

    __tablename__ = "request_events"

    log_index: int = Field(sa_column=Column(LogNumber, primary_key=True, autoincrement=False))
    request_id: str = Field(foreign_key="erasure_requests.id", max_length=36, index=True)
    event: str = Field(max_length=131)
    at: datetime = Field(sa_type=UTCDateTime)
    payload: dict[str, Any] = Field(
        sa_column=Column(SealedJSON("request_events.payload"), nullable=False)
    )
