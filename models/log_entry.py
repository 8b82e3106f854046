"""The append-only log's leaves. Triggers refuse UPDATE and DELETE on both databases."""

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, SQLModel

from models.types import LogNumber


class LogEntry(SQLModel, table=True):
    """One leaf. `event` and `ref` repeat what the leaf says, for queries of history.

    `mac` says that this installation wrote the row (`app.ledger.entry_macs`); it is served to
    nobody.
    """

    __tablename__ = "log_entries"

    index: int = Field(sa_column=Column(LogNumber, primary_key=True, autoincrement=False))
    leaf: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    kind: str = Field(max_length=40, index=True)
    event: str | None = Field(default=None, max_length=131, index=True)
    ref: str | None = Field(default=None, max_length=128, index=True)
    day: str = Field(max_length=10, index=True)  # as in the leaf: never finer than a day
    mac: bytes = Field(sa_column=Column(LargeBinary, nullable=False))  # HMAC-SHA256
