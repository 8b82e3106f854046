"""Which queue a job belongs to: one per kind of processor that has workers.

A nudge goes to the default queue: its sender need not know the families, but its workers do. A
worker that receives a GPU worker's nudge forwards it, before it takes a lease.
"""

from sqlmodel import Session, select

from app.dispatch import GPU_QUEUE, QUEUE
from app.method_audits.audits import TASK
from app.service.context import Services
from models import Audit, Job, Model
from workers import runtime
from workers.families import base as family

# Certifying computes nothing: any worker does it.
COMPUTING = ("execute", "verify")


def sent_on(services: Services, job_id: str, stage: str) -> bool:
    """Forward a job's stage if it belongs to another queue; return whether it did."""
    if stage not in COMPUTING or not _may_send(services):
        return False
    with services.reading() as session:
        model_id = session.exec(select(Job.model_id).where(Job.id == job_id)).first()
        queue = _queue(session, model_id)
    return _sent(services, job_id, stage, queue)


def audit_sent_on(services: Services, audit_id: str) -> bool:
    """Forward a method audit's pair if it belongs to another queue; return whether it did."""
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
