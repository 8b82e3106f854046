"""Subjects of records, and tags of what was erased."""

from datetime import datetime

from sqlalchemy import Column, LargeBinary, UniqueConstraint
from sqlmodel import Field, SQLModel

from models.database.sealed import SealedText, Tagged
from models.database.types import UTCDateTime


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


class Tombstone(SQLModel, table=True):
    """HMAC of the record id under the model's tombstone key, and who erased it."""

    __tablename__ = "tombstones"

    model_id: int = Field(primary_key=True, foreign_key="models.id")
    tag: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    # Whose it was, and whose request; None where a restore brought only the tag back.
    subject_id: int | None = Field(default=None, foreign_key="subjects.id", index=True)
    request_id: str | None = Field(
        default=None, foreign_key="erasure_requests.id", max_length=36, index=True
    )
