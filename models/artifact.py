"""Stored blobs: model heads, solver states, evidence. Content lies encrypted in a file."""

from datetime import datetime

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel

from models.types import UTCDateTime, utcnow


class Artifact(SQLModel, table=True):
    """A blob sealed under its own key; without `wrapped_key` the file is noise.

    Shredding is therefore one UPDATE, atomic with whatever else the transaction says; the
    file is unlinked afterwards and a sweep catches the ones that a crash left behind.
    """

    __tablename__ = "artifacts"

    id: str = Field(primary_key=True, max_length=36)
    kind: str = Field(max_length=24)  # head | state | evidence | scores | upload and others
    digest: str = Field(max_length=64, index=True)  # hex SHA-256 of the plaintext
    size: int = Field(sa_type=BigInteger)  # bytes of the plaintext
    wrapped_key: bytes | None = None
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    shredded_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
