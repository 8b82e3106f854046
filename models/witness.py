"""Cosigned checkpoints, and the last state of each witness."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, UTCDateTime, utcnow


class WitnessedCheckpoint(SQLModel, table=True):
    """A checkpoint with witnesses' signatures, for certificates, stored in increasing size.

    `kind`: began (witnessing starts at this size), quorum, without (no quorum in time), ended.
    `mac` proves that this installation wrote the row (`app.witnesses.rows`).
    """

    __tablename__ = "witnessed_checkpoints"

    size: int = Field(sa_type=LogNumber, primary_key=True)
    kind: str = Field(max_length=16)
    note: str
    mac: str = Field(max_length=64)  # HMAC-SHA256
    stored_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class WitnessStanding(SQLModel, table=True):
    """A witness's last state, for display only.

    `evidence` is a note held by the witness that this log's key signed over another tree;
    readers must verify it.
    """

    __tablename__ = "witness_standings"

    witness: str = Field(primary_key=True, max_length=600)  # name+key id of its first key
    size: int = Field(default=0, sa_type=LogNumber)  # of the last cosigned checkpoint
    cosigned_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    problem: str | None = Field(default=None, max_length=16)
    since: datetime | None = Field(default=None, sa_type=UTCDateTime)
    evidence: str | None = Field(default=None)
