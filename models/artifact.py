"""Stored blobs: model heads, solver states, evidence. Content lies encrypted in a file."""

from datetime import datetime

from sqlalchemy import BigInteger, Index, text
from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow

OWED = "wrapped_key IS NULL AND unlinked_at IS NULL"


class Artifact(SQLModel, table=True):
    """A blob sealed under its own key; without `wrapped_key` the file is noise.

    Shredding is therefore one UPDATE, atomic with whatever else the transaction says; the
    file is removed afterwards. A row without both `wrapped_key` and `unlinked_at` owes that.
    """

    __tablename__ = "artifacts"
    __table_args__ = (
        # Empty but for what was shredded just now, however many artifacts there are.
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
