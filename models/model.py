"""Registered models."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow


class Model(SQLModel, table=True):
    """A model under the ledger's care. `state`: registered, ready or failed."""

    __tablename__ = "models"

    id: int | None = Field(default=None, primary_key=True)
    ref: str = Field(unique=True, max_length=80)
    method: str = Field(max_length=40)  # the default method of requests that name none
    config: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    classes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    extractor: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    # Whether an officer approves requests first; seconds until one is executed after that.
    decide: str = Field(default="review", max_length=16)
    cooling_off: int = 0
    state: str = Field(default="registered", max_length=16)
    failure: str | None = None
    current_version: int | None = None
    # Sealed under the master key; tags erased record ids, and gives the key of noise.
    tombstone_key: bytes
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
