"""Records that a client added to a model's training set."""

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlmodel import Field, SQLModel

from models.database.sealed import SealedText, Tagged
from models.database.types import LogNumber, UTCDateTime, utcnow


class Contribution(SQLModel, table=True):
    """An upload waiting to be learned, or learned. `state`: received, learned or failed."""

    __tablename__ = "contributions"
    __table_args__ = (UniqueConstraint("keyid", "idempotency_key"),)

    id: str = Field(primary_key=True, max_length=36)
    model_id: int = Field(foreign_key="models.id", index=True)
    keyid: str | None = Field(default=None, max_length=128)  # None: the registration itself
    upload_id: str = Field(foreign_key="artifacts.id", max_length=36)
    rows: int
    state: str = Field(default="received", max_length=16)
    failure: str | None = None
    saturated: int = 0  # codes clipped by the quantiser
    log_index: int = Field(sa_type=LogNumber)
    idempotency_key: str | None = Field(default=None, sa_type=Tagged("idempotency-key"))
    # Hex SHA-256 of the checked upload.
    body_digest: str = Field(sa_type=SealedText("contributions.body_digest"))
    received_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
