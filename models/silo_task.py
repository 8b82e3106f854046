"""One client's part of a federated round, processed by a silo; messages name the row."""

import uuid
from datetime import datetime

from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow


class SiloTask(SQLModel, table=True):
    """A sealed task and its result: sealed bytes or a fault.

    Rows exist as long as the round. A silo takes a free row by setting taken_at in a single
    statement, so a message delivered twice is answered once. If the row is gone, the silo is
    too late.
    """

    __tablename__ = "silo_tasks"

    id: str = Field(default_factory=lambda: str(uuid.uuid4()), primary_key=True, max_length=36)
    job_id: str = Field(index=True, max_length=36)  # not a foreign key: benchmarks have no job
    model_id: int = Field(foreign_key="models.id")
    queue: str = Field(max_length=40)
    task_id: str = Field(foreign_key="artifacts.id", max_length=36)
    answer_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    fault: str | None = Field(default=None, max_length=80)  # the type of an error, no text
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    taken_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    answered_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
