"""Execute: learn what was contributed, or remove what was asked for.

Everything is computed before the transaction and committed in one: the new version, the
retained set, the destroyed keys and the log entries stand or fall together. It is computed by
the model's row that was compared with the log, and by no other reading of it.
"""

from app.reconcile.judgement import is_executed
from app.reconcile.model_events import request_events
from app.service.context import Services
from app.steps import reached
from models import ErasureRequest
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs import (
    erase,
    learn,
    repair,
)
from workers.jobs.cleanup import clean
from workers.jobs.context import JobContext
from workers.jobs.lease import Lease, leased
from workers.jobs.refuse import refuse
from workers.jobs.registered import OtherModelError, as_registered
from workers.jobs.sweep import nudge_next

EXECUTED = "the log has this request as executed already, the database as not begun"


def run(services: Services, job_id: str) -> None:
    """Execute a job if it is its turn, and nudge what follows."""
    with leased(services, job_id, "execute") as lease:
        if lease is None:
            return
        try:
            with services.reading() as session:
                model = as_registered(services.ledger, session, lease.model_id)
            job = JobContext(services, lease, model)
            if lease.kind == "erase" and lease.attempt == 1 and _is_executed(services, lease):
                # Its rows are gone and what came of it may be refuted: nothing is tried on it.
                repair.give_up(services, lease, EXECUTED)
            elif lease.kind == "erase" and lease.attempt > 1:
                repair.run(job)
            else:
                _begin(job)
        except RefusedError as refusal:
            if lease.kind == "erase" and isinstance(refusal, OtherModelError):
                repair.hold(services, lease, str(refusal))
            elif lease.attempt > 1:
                repair.give_up(services, lease, str(refusal))
            else:
                refuse(services, lease, str(refusal))
        reached("execute.applied")
        clean(services)
    # After the lease: the nudge's receiver must find the job free.
    if lease is not None:
        nudge_next(services, lease.model_id)


def _begin(job: JobContext) -> None:
    """Execute a job on its first attempt, or let it wait."""
    kind = family.of(job.model)
    own = kind.own_jobs.get(job.lease.kind)
    if own is not None:
        own(job)
    elif job.lease.kind != "erase":
        learn.run(job)
    elif not kind.park(job):
        erase.run(job)


def _is_executed(services: Services, lease: Lease) -> bool:
    with services.reading() as session:
        ref = session.get_one(ErasureRequest, lease.request_id).ref
    return is_executed(request_events(services.ledger, ref))
