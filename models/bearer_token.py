"""Bearer tokens of operators and auditors, stored as hashes."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from models.types import UTCDateTime, utcnow


class BearerToken(SQLModel, table=True):
    """`digest` is the hex SHA-256 of the token, which is shown once and never kept."""

    __tablename__ = "bearer_tokens"

    digest: str = Field(primary_key=True, max_length=64)
    scope: str = Field(max_length=16)  # operator | auditor
    name: str = Field(max_length=80)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    mac: str = Field(default="", max_length=64)  # of all the others: `app.ledger.key_rows`
