"""What is stored of the trees of retained sets, so that a deletion reads little of them."""

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, SQLModel


class RetainedPage(SQLModel, table=True):
    """The parts of a prefix that many commitments of a model begin with.

    body: for each next byte, in order: the byte, how many commitments begin so (uint64,
    big-endian), and the root of their tree, 32 bytes.
    """

    __tablename__ = "retained_pages"

    model_id: int = Field(primary_key=True, foreign_key="models.id")
    prefix: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
