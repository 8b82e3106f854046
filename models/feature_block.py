"""A subject's quantised rows, sealed under the subject's key."""

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, SQLModel


class FeatureBlock(SQLModel, table=True):
    """All rows of one subject in one ciphertext; erasing one rewrites it, newly keyed."""

    __tablename__ = "feature_blocks"

    subject_id: int = Field(primary_key=True, foreign_key="subjects.id")
    model_id: int = Field(foreign_key="models.id", index=True)
    rows: int
    key_generation: int
    ciphertext: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
