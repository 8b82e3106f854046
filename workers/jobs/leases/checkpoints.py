"""Sealed files of a job that are destroyed with it: its checkpoint, and the model before.

A checkpoint is where a long training goes on after its worker died. It holds weights that may
have seen what is being erased, so it is destroyed with its stage.

The verifier compares a version with what was before the update. That may hold what is erased,
so it lives until the last request of the update has ended, which share it.
"""

import os
from collections.abc import Callable

from sqlmodel import Session, col, select

from app.ledger.transaction import Transaction
from app.service.context import Services
from app.steps import reached
from models import Job
from workers.jobs.leases.lease import JobContext, held_job

Log = Callable[[Transaction, bytes], None]


def load(job: JobContext) -> bytes | None:
    """Return the last checkpoint of a job's stage, None at its beginning."""
    with job.services.reading() as session:
        row = session.exec(select(Job).where(Job.id == job.lease.job_id)).one()
        if row.checkpoint_id is None:
            return None
        return job.services.artifacts.get(session, row.checkpoint_id)


def save(job: JobContext, data: bytes) -> None:
    """Replace the checkpoint of a job's stage.

    Raises:
        LeaseLostError: Another worker holds the job now: it goes on, this one stops.
    """
    _keep(job, data)
    reached("execute.checkpoint")
    job.services.artifacts.unlink_shredded(job.services.engine)


def _keep(job: JobContext, data: bytes, log: Log | None = None) -> None:
    artifacts = job.services.artifacts

    def effect(tx: Transaction) -> None:
        row = held_job(tx, job.lease)
        if log is not None:
            log(tx, data)
        if row.checkpoint_id is not None:
            artifacts.shred(tx.session, row.checkpoint_id)
        row.checkpoint_id = artifacts.put(tx.session, "checkpoint", data).id
        row.deaths = 1  # the running try: what got further did not end its workers in vain

    job.services.ledger.transact(effect, checkpoint=log is not None)


def discard(job: JobContext) -> None:
    """Destroy the checkpoint of a stage that must begin anew. Raises LeaseLostError."""
    job.services.ledger.transact(lambda tx: let_go(job, tx), checkpoint=False)


def draw_once(job: JobContext, log: Log) -> bytes:
    """Return the stage's 32 random bytes: drawn when it first began, the same ever after.

    log: writes what the log says of them, with the transaction that keeps them. Were they
    drawn anew, who kills a judge before an unwelcome verdict could try another.
    """
    drawn = load(job)
    if drawn is None:
        drawn = os.urandom(32)
        _keep(job, drawn, log)
    return drawn


def let_go(job: JobContext, tx: Transaction) -> None:
    """Destroy the checkpoint with the transaction that ends the stage."""
    row = held_job(tx, job.lease)
    if row.checkpoint_id is not None:
        job.services.artifacts.shred(tx.session, row.checkpoint_id)
        row.checkpoint_id = None
        tx.session.flush()


def keep_before(services: Services, tx: Transaction, data: bytes | None) -> str | None:
    """Seal what was before an update; return the artifact's id."""
    return None if data is None else services.artifacts.put(tx.session, "before", data).id


def release_before(services: Services, tx: Transaction, job: Job) -> None:
    """Destroy it with the last job that it is for, which has just ended."""
    if job.before_id is None:
        return
    others = select(Job.id).where(
        Job.before_id == job.before_id, Job.id != job.id, col(Job.done_at).is_(None)
    )
    if tx.session.exec(others).first() is None:
        services.artifacts.shred(tx.session, job.before_id)


def drop_before(services: Services, session: Session, job_id: str) -> None:
    """Destroy it at once, for all jobs: nothing is compared with it any more."""
    before_id = session.exec(select(Job.before_id).where(Job.id == job_id)).one()
    if before_id is None:
        return
    for job in session.exec(select(Job).where(Job.before_id == before_id)):
        job.before_id = None
    session.flush()
    services.artifacts.shred(session, before_id)
