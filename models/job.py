"""The queues of work on models and at silos. A Celery message only nudges to read them."""

import uuid
from datetime import datetime

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel

from models.database.types import UTCDateTime, utcnow

PARKED = "awaiting"  # the stage of a job that waits for an answer from outside
OPEN = "done_at IS NULL"


class Job(SQLModel, table=True):
    """One unit of work and its lease.

    Jobs of one model run in the order of `seq`, one at a time. A worker holds a job while
    `lease_until` is in the future; `lease_token` is the fencing token, and every effect is
    committed together with `WHERE lease_token = mine`, so a worker that lost its lease
    cannot commit anything.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        # The head of a queue: holds no finished job, of which a model has one for each request.
        Index(
            "ix_jobs_open",
            "model_id", "seq",
            sqlite_where=text(OPEN), postgresql_where=text(OPEN),
        ),
    )  # fmt: skip

    seq: int | None = Field(default=None, primary_key=True)
    id: str = Field(unique=True, max_length=36)
    model_id: int = Field(foreign_key="models.id", index=True)
    kind: str = Field(max_length=16)  # learn | erase | mend, or a family's own
    request_id: str | None = Field(
        default=None, unique=True, foreign_key="erasure_requests.id", max_length=36
    )
    contribution_id: str | None = Field(
        default=None, unique=True, foreign_key="contributions.id", max_length=36
    )
    # The HTTP call that queued the job, for workers' log lines. Not a capability.
    call_id: str | None = Field(default=None, max_length=36)
    stage: str = Field(max_length=16)  # execute | verify | certify | done
    tries: int = 0  # of the current stage
    # Tries of the current stage whose worker never returned, including the running one.
    deaths: int = 0
    # 1 is the requested method, n + 1 the nth step of the policy's ladder, and the last one
    # retrains. Some are skipped, so that it is not the number of an attempt, which people see.
    step: int = 1
    error: str | None = Field(default=None, max_length=200)  # kind and stage of the last error
    # The sealed output of execution: removal proofs and the list of purged items.
    draft_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    # The statistics before the update, sealed, for the verifier; shared by its requests.
    before_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    # The sealed checkpoint from which a long training resumes; shredded with the stage.
    checkpoint_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    # The worker's phase in this stage and its progress, for display.
    phase: str | None = Field(default=None, max_length=16)
    phase_done: int | None = None
    phase_total: int | None = None
    lease_token: int = 0
    lease_until: datetime | None = Field(default=None, sa_type=UTCDateTime)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    done_at: datetime | None = Field(default=None, sa_type=UTCDateTime, index=True)


class ScheduleLease(SQLModel, table=True):
    """The lease of the process that runs the schedule, in one row (`app.election`)."""

    __tablename__ = "schedule_lease"

    id: int = Field(primary_key=True)  # always 1
    holder: str = Field(max_length=32)  # a process's random id
    until: datetime = Field(sa_type=UTCDateTime)


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
