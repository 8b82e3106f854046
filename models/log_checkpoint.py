"""Signed checkpoints, one for each tree size that was ever published."""

from datetime import datetime

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, SQLModel

from models.types import LogNumber, UTCDateTime, utcnow


class LogCheckpoint(SQLModel, table=True):
    """A signed note over (origin, size, root). Never two different roots for one size."""

    __tablename__ = "log_checkpoints"

    size: int = Field(sa_column=Column(LogNumber, primary_key=True, autoincrement=False))
    root: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    note: str
    signed_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
