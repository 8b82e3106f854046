"""Public keys of those who may sign requests or contributions."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from models.sealed import SealedText
from models.types import UTCDateTime, utcnow


class RequesterKey(SQLModel, table=True):
    """A registered key. A revoked key keeps its row: its id is never given to another."""

    __tablename__ = "requester_keys"

    keyid: str = Field(primary_key=True, max_length=128)
    algorithm: str = Field(max_length=32)
    public_key: str  # PEM, SubjectPublicKeyInfo
    role: str = Field(max_length=16)  # requester | client
    client: str | None = Field(
        default=None, sa_type=SealedText("requester_keys.client")
    )  # entitled to this client only
    subject: str | None = Field(
        default=None, sa_type=SealedText("requester_keys.subject")
    )  # entitled to this subject only
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    mac: str = Field(default="", max_length=64)  # of all the others: `app.ledger.key_rows`
