"""Keys of requesters, their used nonces, and bearer tokens."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column
from sqlmodel import Field, SQLModel

from models.database.types import (
    LogNumber,
    SealedBytes,
    SealedJSON,
    SealedText,
    UTCDateTime,
    utcnow,
)


class RequesterKey(SQLModel, table=True):
    """A registered key. A revoked key keeps its row, so its id is never reused."""

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
    # The ref of the registration in the log, its registrant, and who confirmed the holder.
    ref: str | None = Field(default=None, max_length=36)
    registered_by: str | None = Field(default=None, max_length=80)
    confirmed_by: str | None = Field(default=None, max_length=80)
    # Opens the digest of client and subject in the log; destroyed with them.
    salt: str | None = Field(default=None, sa_type=SealedText("requester_keys.salt"))
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    mac: str = Field(default="", max_length=64)  # of all other columns: `app.ledger.key_rows`


class KeyEvent(SQLModel, table=True):
    """The opening of a log entry about a key: its registration or confirmation.

    Append-only, and kept as long as the key's row: the approver of a request is compared with
    it. It names no client and no subject. key: opens the commitment.
    """

    __tablename__ = "key_events"

    log_index: int = Field(sa_column=Column(LogNumber, primary_key=True, autoincrement=False))
    ref: str = Field(max_length=36, index=True)
    event: str = Field(max_length=60)
    at: datetime = Field(sa_type=UTCDateTime)
    payload: dict[str, Any] = Field(
        sa_column=Column(SealedJSON("key_events.payload"), nullable=False)
    )
    key: bytes = Field(sa_column=Column(SealedBytes("key_events.key"), nullable=False))


class UsedNonce(SQLModel, table=True):
    """(keyid, nonce) is the primary key: the database itself refuses a replay."""

    __tablename__ = "used_nonces"

    keyid: str = Field(primary_key=True, max_length=128)
    nonce: str = Field(primary_key=True, max_length=128)
    expires_at: datetime = Field(sa_type=UTCDateTime, index=True)


class BearerToken(SQLModel, table=True):
    """`digest` is the hex SHA-256 of the token, which is shown once and never stored."""

    __tablename__ = "bearer_tokens"

    digest: str = Field(primary_key=True, max_length=64)
    scope: str = Field(max_length=16)  # operator | officer | auditor | agent | drp
    name: str = Field(max_length=80)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    mac: str = Field(default="", max_length=64)  # of all the others: `app.ledger.key_rows`
