"""Erasure requests, the openings of their log entries, and their results.

Requests and openings are erasable at the end of retention.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from models.database.types import (
    LogNumber,
    SealedBytes,
    SealedJSON,
    SealedText,
    Tagged,
    UTCDateTime,
    utcnow,
)

ENDED = ("certified", "failed", "refused", "withdrawn")  # states after which no job runs
# A query uses the index of open requests only with exactly this condition.
OPEN = f"state NOT IN {ENDED}"


class ErasureRequest(SQLModel, table=True):
    """`id` is the requester's capability and never public; `ref` is its name in the log.

    From the end of retention, `forgotten_at`, `scope` has only the level and `event_key` is
    empty: the request's log entries can no longer be opened.
    """

    __tablename__ = "erasure_requests"
    __table_args__ = (
        UniqueConstraint("keyid", "idempotency_key"),
        # The queue by deadline, for each state, and for a model.
        Index("ix_erasure_requests_state_due_at_ref", "state", "due_at", "ref"),
        Index(
            "ix_erasure_requests_model_id_state_due_at_ref",
            "model_id", "state", "due_at", "ref",
        ),
        # A covering index, to count a key's open requests.
        Index(
            "ix_erasure_requests_open",
            "keyid", "state",
            sqlite_where=text(OPEN), postgresql_where=text(OPEN),
        ),
    )  # fmt: skip

    id: str = Field(primary_key=True, max_length=36)
    ref: str = Field(unique=True, max_length=36)
    model_id: int = Field(foreign_key="models.id")
    # None for a request that an operator submitted for a person.
    keyid: str | None = Field(default=None, foreign_key="requester_keys.keyid", max_length=128)
    state: str = Field(default="received", max_length=16)
    method: str = Field(max_length=40)
    scope: dict[str, Any] = Field(
        sa_column=Column(SealedJSON("erasure_requests.scope"), nullable=False)
    )
    regulation: str = Field(max_length=16)
    reason: str | None = None  # of a refusal or failure
    event_key: bytes = Field(
        sa_column=Column(SealedBytes("erasure_requests.event_key"), nullable=False)
    )
    log_index: int = Field(sa_type=LogNumber)  # of request.received
    idempotency_key: str | None = Field(default=None, sa_type=Tagged("idempotency-key"))
    body_digest: str = Field(sa_type=SealedText("erasure_requests.body_digest"))
    received_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, index=True)
    forgotten_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    due_at: datetime = Field(sa_type=UTCDateTime)
    # Of the request's case; None for a request submitted without one.
    case_ref: str | None = Field(default=None, max_length=36, index=True)
    held_until: datetime | None = Field(default=None, sa_type=UTCDateTime)  # cooling-off end
    paused_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    assignee: str | None = Field(default=None, max_length=80)
    reminded: int | None = None  # days that were left at the last reminder
    # Officers' notes by the log index of their entry, which has a keyed digest of each.
    notes: dict[str, str] | None = Field(
        default=None, sa_column=Column(SealedJSON("erasure_requests.notes"))
    )


class RequestEvent(SQLModel, table=True):
    """The opening of a log entry about a request: the content behind the leaf's commitment.

    Erasable, with its request's key, at the end of retention.
    """

    __tablename__ = "request_events"

    log_index: int = Field(sa_column=Column(LogNumber, primary_key=True, autoincrement=False))
    request_id: str = Field(foreign_key="erasure_requests.id", max_length=36, index=True)
    event: str = Field(max_length=131)
    at: datetime = Field(sa_type=UTCDateTime)
    payload: dict[str, Any] = Field(
        sa_column=Column(SealedJSON("request_events.payload"), nullable=False)
    )


class Verification(SQLModel, table=True):
    """The report on one request; `evidence_id` is the evidence file behind it."""

    __tablename__ = "verifications"

    request_id: str = Field(primary_key=True, foreign_key="erasure_requests.id", max_length=36)
    version_id: int = Field(foreign_key="model_versions.id", index=True)
    result: str = Field(max_length=16)  # PASS | FAIL | INCONCLUSIVE
    report: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    evidence_id: str = Field(foreign_key="artifacts.id", max_length=36)
    verified_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class Certificate(SQLModel, table=True):
    """The signed envelope and its leaf's index; the bundle is rendered from both.

    `request_id` is the primary key: the database itself refuses a second certificate.
    """

    __tablename__ = "certificates"

    request_id: str = Field(primary_key=True, foreign_key="erasure_requests.id", max_length=36)
    id: str = Field(unique=True, max_length=36)
    envelope: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    issuer_keyid: str = Field(max_length=80)
    result: str = Field(max_length=16, index=True)  # counted without reading envelopes
    log_index: int = Field(unique=True, sa_type=LogNumber)  # of its hashedrekord leaf
    issued_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class Release(SQLModel, table=True):
    """A request to one client for the statistics of the claimed records of one of its blocks.

    `state`: open (the client has not answered), answered, dropped (an operator decided to
    remove the whole block instead), done. `records.claimed_by` marks the records.
    """

    __tablename__ = "releases"
    __table_args__ = (UniqueConstraint("request_id", "subject_id"),)

    id: str = Field(primary_key=True, max_length=36)
    request_id: str = Field(foreign_key="erasure_requests.id", max_length=36, index=True)
    model_id: int = Field(foreign_key="models.id", index=True)
    subject_id: int = Field(foreign_key="subjects.id", index=True)
    state: str = Field(default="open", max_length=16, index=True)
    upload_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    # Of the answer, under a key: the same file is no answer to another release.
    body_digest: str | None = Field(default=None, max_length=64)
    asked: int = 0  # how often the client fetched it
    asked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)  # the last time
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    # An operator decides if the client has not answered by then.
    escalates_at: datetime = Field(sa_type=UTCDateTime)
