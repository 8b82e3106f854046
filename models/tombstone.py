"""What remains of an erased record: a keyed tag that answers "already erased"."""

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, SQLModel


class Tombstone(SQLModel, table=True):
    """HMAC of the record id under the model's tombstone key, and who erased it."""

    __tablename__ = "tombstones"

    model_id: int = Field(primary_key=True, foreign_key="models.id")
    tag: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    subject_id: int = Field(foreign_key="subjects.id", index=True)  # whose it was
    request_id: str = Field(foreign_key="erasure_requests.id", max_length=36, index=True)
