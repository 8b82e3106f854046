"""Hashes of complete subtrees, so that a proof reads O(log n) rows and never the leaves."""

from sqlalchemy import BigInteger, Column, Integer, LargeBinary
from sqlmodel import Field, SQLModel


class LogNode(SQLModel, table=True):
    """The hash of the complete subtree of 2**level leaves starting at index * 2**level."""

    __tablename__ = "log_nodes"
    # Found by (level, index) only: on SQLite the rows live in that index itself.
    __table_args__ = {"sqlite_with_rowid": False}

    level: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    index: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
