"""Whom notices go to, which are still to be sent, and how far the log was read for them."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, Index
from sqlmodel import Field, SQLModel

from models.database.sealed import SealedJSON, SealedText
from models.database.types import LogNumber, UTCDateTime, utcnow


class Webhook(SQLModel, table=True):
    """One endpoint. `row` is its id and generation: a change is a new row with the next one.

    What it was before is listed in `keys/revoked.list`, so an older row cannot be put back.
    secrets: those that sign now, newest first; each with the time it ends, or null.
    """

    __tablename__ = "webhooks"

    row: str = Field(primary_key=True, max_length=60)
    id: str = Field(max_length=40, index=True)
    generation: int
    url: str = Field(sa_type=SealedText("webhooks.url"))  # paths of receivers hold secrets
    events: list[str] = Field(sa_column=Column(SealedJSON("webhooks.events"), nullable=False))
    model: str | None = Field(default=None, max_length=80)  # None: of all models
    secrets: list[dict[str, Any]] = Field(
        sa_column=Column(SealedJSON("webhooks.secrets"), nullable=False)
    )
    created_by: str = Field(max_length=80)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    disabled: str | None = Field(default=None, max_length=40)  # why; None while it is in use
    mac: str = Field(default="", max_length=64)  # of all the others: `app.ledger.key_rows`


class Callback(SQLModel, table=True):
    """An address that is told of one request: a row for each request of the log it follows.

    `id` is a keyed digest of kind, owner, request and url: a row with another address has
    another id, and no delivery is made for it (`app.ledger.callback_rows`). The rows are
    deleted when the request has ended and nothing waits to be delivered.
    """

    __tablename__ = "callbacks"

    id: str = Field(primary_key=True, max_length=40)
    ref: str = Field(primary_key=True, max_length=36, index=True)  # empty: it follows none
    kind: str = Field(max_length=16)  # request, or a protocol
    owner: str = Field(max_length=128, index=True)  # keyid of the requester, name of the agent
    request: str = Field(max_length=36)  # the request's ref, or the id that the agent gave it
    url: str = Field(sa_type=SealedText("callbacks.url"))
    created_at: datetime = Field(sa_type=UTCDateTime)
    told: str | None = Field(default=None, max_length=24)  # the state that was delivered last
    ended: bool = False  # no other state will follow


class Delivery(SQLModel, table=True):
    """A notice to one receiver. It holds no text: that is made of the log when it is sent.

    `id` is a keyed digest of receiver, event and about: no other row is ever sent.
    """

    __tablename__ = "deliveries"
    __table_args__ = (Index("ix_deliveries_state_next_at", "state", "next_at"),)

    id: str = Field(primary_key=True, max_length=40)  # webhook-id, the same in each attempt
    # A webhook's or callback's id, person, or officer-TAG.
    receiver: str = Field(max_length=40, index=True)
    # Of a callback: whose it is. All of one owner are sent one after the other.
    lane: str | None = Field(default=None, max_length=40)
    event: str = Field(max_length=40)
    about: str = Field(max_length=120)  # an index of the log, a case's ref, an alarm, a day
    created_at: datetime = Field(sa_type=UTCDateTime)
    state: str = Field(max_length=16)  # waiting | delivered | failed | dropped
    attempts: int = 0
    next_at: datetime = Field(sa_type=UTCDateTime)
    lease_until: datetime | None = Field(default=None, sa_type=UTCDateTime)
    lease_token: int = 0
    answer: str | None = Field(default=None, max_length=40)  # HTTP status or kind of failure
    ended_at: datetime | None = Field(default=None, sa_type=UTCDateTime)


class NoticeCursor(SQLModel, table=True):
    """The first log entry that was not yet looked at for notices. One row."""

    __tablename__ = "notice_cursor"

    id: int = Field(primary_key=True)
    next_index: int = Field(sa_type=LogNumber)
