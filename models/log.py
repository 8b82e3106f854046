"""Entries, tree nodes and checkpoints of the log, and what witnesses said of those."""

from datetime import datetime

from sqlalchemy import BigInteger, Column, Integer, LargeBinary
from sqlmodel import Field, SQLModel

from models.database.types import LogNumber, UTCDateTime, utcnow


class LogEntry(SQLModel, table=True):
    """One leaf. `event` and `ref` repeat values of the leaf, for queries of history.

    `mac` proves that this installation wrote the row (`app.ledger.entry_macs`); it is never
    served.
    """

    __tablename__ = "log_entries"

    index: int = Field(sa_column=Column(LogNumber, primary_key=True, autoincrement=False))
    leaf: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    kind: str = Field(max_length=40, index=True)
    event: str | None = Field(default=None, max_length=131, index=True)
    ref: str | None = Field(default=None, max_length=128, index=True)
    day: str = Field(max_length=10, index=True)  # as in the leaf: never finer than a day
    mac: bytes = Field(sa_column=Column(LargeBinary, nullable=False))  # HMAC-SHA256


class LogNode(SQLModel, table=True):
    """The hash of the complete subtree of 2**level leaves starting at index * 2**level."""

    __tablename__ = "log_nodes"
    # Looked up by (level, index) only: on SQLite the rows are stored in that index.
    __table_args__ = {"sqlite_with_rowid": False}

    level: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    index: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class LogCheckpoint(SQLModel, table=True):
    """A signed note over (origin, size, root). Never two different roots for one size."""

    __tablename__ = "log_checkpoints"

    size: int = Field(sa_column=Column(LogNumber, primary_key=True, autoincrement=False))
    root: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    note: str
    signed_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class WitnessedCheckpoint(SQLModel, table=True):
    """A checkpoint with witnesses' signatures, for certificates, stored in increasing size.

    `kind`: began (witnessing starts at this size), quorum, without (no quorum in time), ended,
    later (a quorum for a size that has a row of another kind; `size` is negative, and the note
    has it as it is).
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
