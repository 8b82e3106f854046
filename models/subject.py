"""Subjects of records, and tombstones of erased records."""

from datetime import datetime

from sqlalchemy import Column, LargeBinary, UniqueConstraint
from sqlmodel import Field, SQLModel

from models.database.sealed import SealedText, Tagged
from models.database.types import UTCDateTime


class Subject(SQLModel, table=True):
    """One person's (or client's) share of a training set, named by opaque ids.

    `client` and `subject` are destroyed with the last record; the tags stay, like tombstones,
    and show only that the subject existed.
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
    key_generation: int = 0  # incremented with each new key, so destroyed keys can be counted
    shredded_at: datetime | None = Field(default=None, sa_type=UTCDateTime)


class Tombstone(SQLModel, table=True):
    """HMAC of an erased record's id under the model's tombstone key, and its request."""

    __tablename__ = "tombstones"

    model_id: int = Field(primary_key=True, foreign_key="models.id")
    tag: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    # The record's subject and the erasing request; None if a restore only had the tag.
    subject_id: int | None = Field(default=None, foreign_key="subjects.id", index=True)
    request_id: str | None = Field(
        default=None, foreign_key="erasure_requests.id", max_length=36, index=True
    )
