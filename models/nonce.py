"""Nonces of signed requests, kept until the signature they came with has expired."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from models.types import UTCDateTime


class UsedNonce(SQLModel, table=True):
    """(keyid, nonce) is the primary key: the database itself refuses a replay."""

    __tablename__ = "used_nonces"

    keyid: str = Field(primary_key=True, max_length=128)
    nonce: str = Field(primary_key=True, max_length=128)
    expires_at: datetime = Field(sa_type=UTCDateTime, index=True)
