"""Stored blobs: model heads, solver states, evidence. The content is an encrypted file."""

from datetime import datetime

from sqlalchemy import BigInteger, Index, text
from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow

OWED = "wrapped_key IS NULL AND unlinked_at IS NULL"


class Artifact(SQLModel, table=True):
    """A blob sealed under its own key; without `wrapped_key` the file cannot be opened.

    Shredding is therefore one UPDATE, atomic with the rest of the transaction; the file is
    removed afterwards. A row with neither `wrapped_key` nor `unlinked_at` still has its file.
    """

    __tablename__ = "artifacts"
    __table_args__ = (
        # Holds only rows shredded just now, however many artifacts there are.
        Index("ix_artifacts_owed", "id", sqlite_where=text(OWED), postgresql_where=text(OWED)),
        Index("ix_artifacts_kind_shredded_at", "kind", "shredded_at"),
    )

    id: str = Field(primary_key=True, max_length=36)
    kind: str = Field(max_length=24)  # head | state | evidence | scores | upload and others
    digest: str = Field(max_length=64, index=True)  # hex SHA-256 of the plaintext
    size: int = Field(sa_type=BigInteger)  # bytes of the plaintext
    wrapped_key: bytes | None = None
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    shredded_at: datetime | None = Field(default=None, sa_type=UTCDateTime, index=True)
    unlinked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)  # file removed
