"""The progress of a long stage, shown to its observers. No computation depends on it.

Each round is a small update of the job's row, outside the ledger's lock. A failed update is
skipped: the next round makes another.
"""

import logging
from collections.abc import Callable

from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col

from app.schemas.models import Phase
from models import Job
from workers.leases.lease import JobContext
from workers.methods.network.base import Tick

log = logging.getLogger(__name__)


def record(job: JobContext, phase: Phase, done: int, total: int) -> None:
    """Store how much of the lease's stage is done, unless another worker holds the job."""
    lease = job.lease
    try:
        with job.services.engine.begin() as connection:
            connection.execute(
                update(Job)
                .where(
                    col(Job.id) == lease.job_id,
                    col(Job.lease_token) == lease.token,
                    col(Job.stage) == lease.stage,
                )
                .values(phase=phase, phase_done=done, phase_total=total)
            )
    except SQLAlchemyError as error:
        log.warning("progress of job %s not recorded: %s", lease.job_id, type(error).__name__)


def recorder(job: JobContext) -> Callable[[Tick], None]:
    """Return a callback that records each round of a training or an unlearning."""
    retrain: Phase = "retraining" if job.lease.kind == "erase" else "training"

    def record_tick(tick: Tick) -> None:
        phase: Phase = retrain if tick.phase == "retrain" else tick.phase
        record(job, phase, tick.done, tick.total)

    return record_tick


def repetition(job: JobContext, total: int) -> Callable[[int], None]:
    """Return a callback that records each round of a repeated training."""
    record(job, "repetition", 0, total)
    return lambda done: record(job, "repetition", done, total)
