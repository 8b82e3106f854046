"""Masked rounds and their members."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column, Text
from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, SealedJSON, SealedText, UTCDateTime, utcnow


class Round(SQLModel, table=True):
    """One round of secure aggregation over the members of `round_members`.

    `state`: advertise, share, masked, confirm, reveal (the open step), summing (a worker's
    turn), done or failed. `transcript_id`: the sealed artifact that the verifier sums again,
    shredded with the last certificate that needs it; `counts_id`: the artifact of the model's
    label counts after the round.
    """

    __tablename__ = "rounds"

    id: str = Field(primary_key=True, max_length=36)
    model_id: int = Field(foreign_key="models.id", index=True)
    plan: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    threshold: int
    state: str = Field(default="advertise", max_length=16, index=True)
    reason: str | None = Field(default=None, max_length=300)
    step_seconds: int
    step_until: datetime = Field(sa_type=UTCDateTime)
    # The released records by request id, as of the opening.
    requests: dict[str, list[str]] = Field(
        sa_column=Column(SealedJSON("rounds.requests"), nullable=False)
    )
    warnings: list[str] = Field(sa_column=Column(JSON, nullable=False))
    job_id: str | None = Field(default=None, unique=True, max_length=36)
    transcript_id: str | None = Field(
        default=None, foreign_key="artifacts.id", max_length=36, index=True
    )
    counts_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    log_index: int = Field(sa_type=LogNumber)  # of round.opened
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    closed_at: datetime | None = Field(default=None, sa_type=UTCDateTime)


class RoundMember(SQLModel, table=True):
    """A member by its key, and its sealed messages, which are shredded when the round ends."""

    __tablename__ = "round_members"

    round_id: str = Field(primary_key=True, foreign_key="rounds.id", max_length=36)
    keyid: str = Field(
        primary_key=True, foreign_key="requester_keys.keyid", max_length=128, index=True
    )
    client: str = Field(sa_type=SealedText("round_members.client"))
    moved: int = 0  # records that its masked input adds or releases
    # The signed statement about that input shown to its peers: counts and digests, no ids.
    statement: str | None = Field(default=None, sa_type=Text)
    advertise_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    share_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    masked_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    confirm_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    reveal_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
