"""Receivers of notices, pending deliveries, and the position in the log."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, Index
from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, SealedJSON, SealedText, UTCDateTime, utcnow


class Webhook(SQLModel, table=True):
    """One endpoint. `row` is its id and generation: a change writes a row of the next one.

    Replaced rows are listed in `keys/revoked.list`, so an older row cannot be restored.
    secrets: the current signing secrets, newest first, each with its end time or null.
    """

    __tablename__ = "webhooks"

    row: str = Field(primary_key=True, max_length=60)
    id: str = Field(max_length=40, index=True)
    generation: int
    url: str = Field(sa_type=SealedText("webhooks.url"))  # its path may contain a secret
    events: list[str] = Field(sa_column=Column(SealedJSON("webhooks.events"), nullable=False))
    model: str | None = Field(default=None, max_length=80)  # None: all models
    secrets: list[dict[str, Any]] = Field(
        sa_column=Column(SealedJSON("webhooks.secrets"), nullable=False)
    )
    created_by: str = Field(max_length=80)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    disabled: str | None = Field(default=None, max_length=40)  # why; None while it is in use
    mac: str = Field(default="", max_length=64)  # of all other columns: `app.ledger.key_rows`


class Callback(SQLModel, table=True):
    """An address that gets the events of one request: a row for each logged request followed.

    `id` is a keyed digest of kind, owner, request and url, so a row with a changed address is
    invalid and gets no deliveries (`app.ledger.callback_rows`). The rows are deleted when the
    request has ended and all deliveries are done.
    """

    __tablename__ = "callbacks"

    id: str = Field(primary_key=True, max_length=40)
    ref: str = Field(primary_key=True, max_length=36, index=True)  # empty: it follows none
    kind: str = Field(max_length=16)  # request, or a protocol
    owner: str = Field(max_length=128, index=True)  # keyid of the requester, name of the agent
    request: str = Field(max_length=36)  # the request's ref, or the id that the agent gave it
    url: str = Field(sa_type=SealedText("callbacks.url"))
    created_at: datetime = Field(sa_type=UTCDateTime)
    delivered_state: str | None = Field(default=None, max_length=24)  # the last one delivered
    ended: bool = False  # the state is final


class Delivery(SQLModel, table=True):
    """A notice to one receiver, without text: the text is made from the log when it is sent.

    `id` is a keyed digest of receiver, event and about: rows with another id are not sent.
    """

    __tablename__ = "deliveries"
    __table_args__ = (Index("ix_deliveries_state_next_at", "state", "next_at"),)

    id: str = Field(primary_key=True, max_length=40)  # webhook-id, the same in each attempt
    # A webhook's or callback's id, person, or officer-TAG.
    receiver: str = Field(max_length=40, index=True)
    # For callbacks, the owner's pseudonym: deliveries of one owner are sent in sequence.
    lane: str | None = Field(default=None, max_length=40)
    event: str = Field(max_length=40)
    about: str = Field(max_length=120)  # a log index, a case's ref, an alarm, or a day
    created_at: datetime = Field(sa_type=UTCDateTime)
    state: str = Field(max_length=16)  # waiting | delivered | failed | dropped
    attempts: int = 0
    next_at: datetime = Field(sa_type=UTCDateTime)
    lease_until: datetime | None = Field(default=None, sa_type=UTCDateTime)
    lease_token: int = 0
    answer: str | None = Field(default=None, max_length=40)  # HTTP status or kind of failure
    ended_at: datetime | None = Field(default=None, sa_type=UTCDateTime)


class NoticeCursor(SQLModel, table=True):
    """The index of the first log entry not yet processed for notices. One row."""

    __tablename__ = "notice_cursor"

    id: int = Field(primary_key=True)
    next_index: int = Field(sa_type=LogNumber)
