"""Data subjects of a model and the key their stored features are sealed under."""

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlmodel import Field, SQLModel

from models.types import UTCDateTime


class Subject(SQLModel, table=True):
    """One person's (or client's) share of a training set, named by opaque ids."""

    __tablename__ = "subjects"
    __table_args__ = (UniqueConstraint("model_id", "client", "subject"),)

    id: int | None = Field(default=None, primary_key=True)
    model_id: int = Field(foreign_key="models.id", index=True)
    client: str = Field(max_length=200, index=True)
    subject: str = Field(max_length=200, index=True)
    wrapped_key: bytes | None = None  # None once destroyed
    key_generation: int = 0  # grows with each new key, so that a destroyed one can be counted
    shredded_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
