"""What the end of retention destroyed, and what legal holds keep from it."""

from datetime import datetime

from sqlalchemy import Column
from sqlmodel import Field, SQLModel

from models.database.sealed import SealedBytes, SealedText
from models.database.types import LogNumber, UTCDateTime


class RetentionRemoval(SQLModel, table=True):
    """One thing that was destroyed because it was kept long enough.

    kind: as `lethe.catalogue.RETAINED` has them. ref: of the request, case or registration of a
    key, empty of a key without one; sealed, so that nobody without the master key can say of
    another one that its retention ended. before: what had ended by then was due. log_index: of
    the entry that counts it, None until its files are gone too.
    """

    __tablename__ = "retention_removals"

    id: int | None = Field(default=None, primary_key=True)
    kind: str = Field(max_length=16)
    ref: str = Field(sa_type=SealedText("retention_removals.ref"))
    before: datetime = Field(sa_type=UTCDateTime)
    at: datetime = Field(sa_type=UTCDateTime)
    log_index: int | None = Field(default=None, sa_type=LogNumber, index=True)


class LegalHold(SQLModel, table=True):
    """What is kept although its retention may have ended, until the hold is released.

    id: what the log calls it. kind: case, request or model; target: its reference. key: opens
    the entries of its placing and its release, which commit to all else.
    """

    __tablename__ = "legal_holds"

    id: str = Field(primary_key=True, max_length=36)
    kind: str = Field(max_length=16)
    target: str = Field(max_length=80, index=True)
    reason: str = Field(sa_type=SealedText("legal_holds.reason"))
    key: bytes = Field(sa_column=Column(SealedBytes("legal_holds.key"), nullable=False))
    placed_by: str = Field(max_length=80)  # the name of a token
    placed_at: datetime = Field(sa_type=UTCDateTime)
    log_index: int = Field(sa_type=LogNumber)
    released_by: str | None = Field(default=None, max_length=80)
    released_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    release_index: int | None = Field(default=None, sa_type=LogNumber)
