"""Which queue a job belongs to: one for each kind of processor that there are workers for.

A nudge goes to the default queue, whose workers know the families; whoever sends it need not.
A worker that takes one for a GPU's worker sends it on, before it takes a lease.
"""

from sqlmodel import Session, select

from app.dispatch import GPU_QUEUE, QUEUE
from app.method_audits.audits import TASK
from app.service.context import Services
from models import Audit, Job, Model
from workers import runtime
from workers.families import base as family

# Certifying computes nothing: whoever is free does it.
COMPUTING = ("execute", "verify")


def sent_on(services: Services, job_id: str, stage: str) -> bool:
    """Return whether a job's stage is another queue's, and was sent there."""
    if stage not in COMPUTING or not _may_send(services):
        return False
    with services.reading() as session:
        model_id = session.exec(select(Job.model_id).where(Job.id == job_id)).first()
        queue = _queue(session, model_id)
    return _sent(services, job_id, stage, queue)


def audit_sent_on(services: Services, audit_id: str) -> bool:
    """Return whether a method audit's pair is another queue's, and was sent there."""
    if not _may_send(services):
        return False
    with services.reading() as session:
        audit = session.get(Audit, audit_id)
        queue = _queue(session, None if audit is None else audit.model_id)
    return _sent(services, audit_id, TASK, queue)


def _may_send(services: Services) -> bool:
    return services.settings.gpu_queue and GPU_QUEUE not in runtime.queues()


def _queue(session: Session, model_id: int | None) -> str:
    model = None if model_id is None else session.get(Model, model_id)
    trains = model is not None and family.of(model).trains_networks
    return GPU_QUEUE if trains else QUEUE


def _sent(services: Services, row: str, stage: str, queue: str) -> bool:
    if queue == QUEUE:
        return False
    services.dispatcher.nudge(row, stage, queue)
    return True
