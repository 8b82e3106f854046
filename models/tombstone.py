"""What remains of an erased record: a keyed tag that answers "already erased"."""

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, SQLModel


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
