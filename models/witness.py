"""What witnesses cosigned, and how each of them stands."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, UTCDateTime, utcnow


class WitnessedCheckpoint(SQLModel, table=True):
    """A checkpoint that certificates carry, with the lines of its witnesses, in growing order.

    `kind`: began (witnesses are asked from this size on), quorum, without (no quorum in
    time), ended. `mac` says that this installation wrote the row (`app.witnesses.rows`).
    """

    __tablename__ = "witnessed_checkpoints"

    size: int = Field(sa_type=LogNumber, primary_key=True)
    kind: str = Field(max_length=16)
    note: str
    mac: str = Field(max_length=64)  # HMAC-SHA256
    stored_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class WitnessStanding(SQLModel, table=True):
    """What a witness did last, for people. Nothing is decided by it.

    `evidence` is a note that the witness holds and that this log's key signed, if it is of
    another tree: whoever reads it verifies it.
    """

    __tablename__ = "witness_standings"

    witness: str = Field(primary_key=True, max_length=600)  # name+key id of its first key
    size: int = Field(default=0, sa_type=LogNumber)  # of what it cosigned last
    cosigned_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    problem: str | None = Field(default=None, max_length=16)
    since: datetime | None = Field(default=None, sa_type=UTCDateTime)
    evidence: str | None = Field(default=None)
