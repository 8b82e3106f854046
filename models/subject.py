"""Data subjects of a model and the key their stored features are sealed under."""

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlmodel import Field, SQLModel

from models.sealed import SealedText, Tagged
from models.types import UTCDateTime


class Subject(SQLModel, table=True):
    """One person's (or client's) share of a training set, named by opaque ids.

    `client` and `subject` are destroyed with the last record; the tags stay, as tombstones
    do, and answer that there was one.
    """

    __tablename__ = "subjects"
    __table_args__ = (UniqueConstraint("model_id", "client_tag", "subject_tag"),)

    id: int | None = Field(default=None, primary_key=True)
    model_id: int = Field(foreign_key="models.id", index=True)
    client: str | None = Field(default=None, sa_type=SealedText("subjects.client"))
    subject: str | None = Field(default=None, sa_type=SealedText("subjects.subject"))
    client_tag: str = Field(sa_type=Tagged("client"), index=True)
    subject_tag: str = Field(sa_type=Tagged("subject"), index=True)
    wrapped_key: bytes | None = None  # None once destroyed
    key_generation: int = 0  # grows with each new key, so that a destroyed one can be counted
    shredded_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
