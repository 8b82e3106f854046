"""Items destroyed at the end of retention, and legal holds."""

from datetime import datetime

from sqlalchemy import Column
from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, SealedBytes, SealedText, UTCDateTime


class RetentionRemoval(SQLModel, table=True):
    """One item destroyed at the end of its retention.

    kind: one of `lethe.catalogue.RETAINED`. ref: of the request, case or key registration,
    empty for a key without one; sealed, so that nobody without the master key can claim that
    another item's retention ended. before: the cut-off time of the run. log_index: of the entry
    that counts the item, None until its files are removed.
    """

    __tablename__ = "retention_removals"

    id: int | None = Field(default=None, primary_key=True)
    kind: str = Field(max_length=16)
    ref: str = Field(sa_type=SealedText("retention_removals.ref"))
    before: datetime = Field(sa_type=UTCDateTime)
    at: datetime = Field(sa_type=UTCDateTime)
    log_index: int | None = Field(default=None, sa_type=LogNumber, index=True)


class LegalHold(SQLModel, table=True):
    """A hold that keeps its target beyond the end of retention until it is released.

    id: its name in the log. kind: case, request or model; target: the target's reference. key:
    opens the entries of its placement and release, which commit to everything else.
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
