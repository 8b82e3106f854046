"""Keys of requesters, nonces that they used, and bearer tokens."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from models.database.sealed import SealedText
from models.database.types import UTCDateTime, utcnow


class RequesterKey(SQLModel, table=True):
    """A registered key. A revoked key keeps its row: its id is never given to another."""

    __tablename__ = "requester_keys"

    keyid: str = Field(primary_key=True, max_length=128)
    algorithm: str = Field(max_length=32)
    public_key: str  # PEM, SubjectPublicKeyInfo
    role: str = Field(max_length=16)  # requester | client | agent
    client: str | None = Field(
        default=None, sa_type=SealedText("requester_keys.client")
    )  # entitled to this client only
    subject: str | None = Field(
        default=None, sa_type=SealedText("requester_keys.subject")
    )  # entitled to this subject only
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    mac: str = Field(default="", max_length=64)  # of all the others: `app.ledger.key_rows`


class UsedNonce(SQLModel, table=True):
    """(keyid, nonce) is the primary key: the database itself refuses a replay."""

    __tablename__ = "used_nonces"

    keyid: str = Field(primary_key=True, max_length=128)
    nonce: str = Field(primary_key=True, max_length=128)
    expires_at: datetime = Field(sa_type=UTCDateTime, index=True)


class BearerToken(SQLModel, table=True):
    """`digest` is the hex SHA-256 of the token, which is shown once and never kept."""

    __tablename__ = "bearer_tokens"

    digest: str = Field(primary_key=True, max_length=64)
    scope: str = Field(max_length=16)  # operator | officer | auditor | agent | drp
    name: str = Field(max_length=80)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    mac: str = Field(default="", max_length=64)  # of all the others: `app.ledger.key_rows`
