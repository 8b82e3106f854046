"""The retained set: one row for each record in training, with its salted commitment."""

from sqlalchemy import Column, Index, LargeBinary, UniqueConstraint
from sqlmodel import Field, SQLModel

from models.sealed import SealedName


class Record(SQLModel, table=True):
    """A record is its id, not its content. Erasure deletes the row and its salt with it."""

    __tablename__ = "records"
    __table_args__ = (
        UniqueConstraint("model_id", "record"),
        # The leaves of a part of the retained set's tree are read by their prefix.
        Index("ix_records_model_id_commitment", "model_id", "commitment"),
    )

    id: int | None = Field(default=None, primary_key=True)
    model_id: int = Field(foreign_key="models.id", index=True)
    subject_id: int = Field(foreign_key="subjects.id", index=True)
    record: str = Field(sa_type=SealedName("records.record"))
    salt: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    commitment: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    # The salted digest of the stored row, 32 zero bytes where none is stored. Its salt lies
    # sealed with the row and is destroyed with it.
    content: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    # The open request that will erase it: two requests never claim the same record.
    claimed_by: str | None = Field(
        default=None, foreign_key="erasure_requests.id", max_length=36, index=True
    )
