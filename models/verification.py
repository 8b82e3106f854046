"""The verifier's reports, before certification."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow


class Verification(SQLModel, table=True):
    """The report on one request; `evidence_id` is the evidence file behind it."""

    __tablename__ = "verifications"

    request_id: str = Field(primary_key=True, foreign_key="erasure_requests.id", max_length=36)
    version_id: int = Field(foreign_key="model_versions.id", index=True)
    result: str = Field(max_length=16)  # PASS | FAIL | INCONCLUSIVE
    report: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    evidence_id: str = Field(foreign_key="artifacts.id", max_length=36)
    verified_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
