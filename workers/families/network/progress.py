"""Tells how far a long stage is, for whoever waits. A courtesy: no computation depends on it.

Each round is a small update of the job's row, beside the ledger's writer. What cannot be told
now is not told: the next round may be.
"""

import logging
from collections.abc import Callable

from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col

from app.schemas.progress import Phase
from app.service.context import Services
from models import Job
from workers.jobs.lease import Lease
from workers.methods.network.base import Tick

log = logging.getLogger(__name__)


def tell(services: Services, lease: Lease, phase: Phase, done: int, total: int) -> None:
    """Write how much of the lease's stage is done, unless another worker holds the job."""
    try:
        with services.engine.begin() as connection:
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
        log.warning("progress of job %s not told: %s", lease.job_id, type(error).__name__)


def teller(services: Services, lease: Lease) -> Callable[[Tick], None]:
    """Return what hears of the rounds of a training or an unlearning."""
    retrain: Phase = "retraining" if lease.kind == "erase" else "training"

    def hear(tick: Tick) -> None:
        phase: Phase = retrain if tick.phase == "retrain" else tick.phase
        tell(services, lease, phase, tick.done, tick.total)

    return hear


def repetition(services: Services, lease: Lease, total: int) -> Callable[[int], None]:
    """Return what hears of the rounds of a training that is repeated to compare it."""
    tell(services, lease, "repetition", 0, total)
    return lambda done: tell(services, lease, "repetition", done, total)
