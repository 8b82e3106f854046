"""Issued certificates, one for each request."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, UTCDateTime, utcnow


class Certificate(SQLModel, table=True):
    """The signed envelope and its leaf's index; the bundle is rendered from both.

    `request_id` is the primary key: the database itself refuses a second certificate.
    """

    __tablename__ = "certificates"

    request_id: str = Field(primary_key=True, foreign_key="erasure_requests.id", max_length=36)
    id: str = Field(unique=True, max_length=36)
    envelope: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    issuer_keyid: str = Field(max_length=80)
    result: str = Field(max_length=16)
    log_index: int = Field(unique=True, sa_type=LogNumber)  # of its hashedrekord leaf
    issued_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
