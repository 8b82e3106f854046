"""Records, whose they are, feature blocks, and pages of the retained set's tree."""

from datetime import datetime

from sqlalchemy import Column, Index, LargeBinary, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from models.database.types import SealedName, SealedText, Tagged, UTCDateTime

CLAIMED = "claimed_by IS NOT NULL"
# Bytes of one owner's rows. PostgreSQL answers with bytes as a text twice as long, of less than
# 2**30 bytes, so a larger block would be stored and never read again; SQLite holds 10**9.
MOST_BLOCK = 500_000_000


class Record(SQLModel, table=True):
    """A record's id, salt and commitments, not its content. Erasure deletes the row."""

    __tablename__ = "records"
    __table_args__ = (
        UniqueConstraint("model_id", "record"),
        # Leaves of a part of the retained set's tree are read by prefix.
        Index("ix_records_model_id_commitment", "model_id", "commitment"),
        # Partial, since few records are claimed and bulk inserts are all unclaimed.
        Index(
            "ix_records_claimed_by",
            "claimed_by",
            sqlite_where=text(CLAIMED),
            postgresql_where=text(CLAIMED),
        ),
    )

    id: int | None = Field(default=None, primary_key=True)
    model_id: int = Field(foreign_key="models.id")  # indexed by the first two entries above
    subject_id: int = Field(foreign_key="subjects.id", index=True)
    record: str = Field(sa_type=SealedName("records.record"))
    salt: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    commitment: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    # The salted digest of the stored row, or 32 zero bytes if none is stored. The salt is
    # sealed with the row and destroyed with it.
    content: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    # The open request that will erase it: two requests never claim the same record.
    claimed_by: str | None = Field(
        default=None, foreign_key="erasure_requests.id", max_length=36
    )


class FeatureBlock(SQLModel, table=True):
    """All rows of one subject in one ciphertext; an erasure rewrites it under a new key."""

    __tablename__ = "feature_blocks"

    subject_id: int = Field(primary_key=True, foreign_key="subjects.id")
    model_id: int = Field(foreign_key="models.id", index=True)
    rows: int
    key_generation: int
    ciphertext: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class RetainedPage(SQLModel, table=True):
    """The parts below a prefix shared by many commitments of a model.

    body: for each next byte, in order: the byte, the number of commitments with it (uint64,
    big-endian), and the root of their tree, 32 bytes.
    """

    __tablename__ = "retained_pages"

    model_id: int = Field(primary_key=True, foreign_key="models.id")
    prefix: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


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
