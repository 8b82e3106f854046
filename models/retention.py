"""What the end of retention destroyed."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from models.database.sealed import SealedText
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
