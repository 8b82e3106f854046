"""Sealed files of a job that are destroyed with it: its checkpoint, and the model before.

A long training resumes from its checkpoint after a worker's death. The checkpoint's weights may
have seen the rows to be erased, so it is destroyed at the end of its stage.

The verifier compares a version with the model before the update. That model may hold the erased
rows, so it is destroyed when the last request of the update ends; they share it.
"""

import os
from collections.abc import Callable

from sqlmodel import Session, col, select

from app.ledger.transaction import Transaction
from app.service.context import Services
from app.steps import reached
from app.vault.scrub import scrub
from models import Job
from workers.leases.lease import JobContext, held_job

Log = Callable[[Transaction, bytes], None]
CHECKPOINT, BEFORE = "checkpoint", "before"  # of artifacts


def load(job: JobContext) -> bytes | None:
    """Return the last checkpoint of a job's stage, None if there is none."""
    with job.services.reading() as session:
        row = session.exec(select(Job).where(Job.id == job.lease.job_id)).one()
        if row.checkpoint_id is None:
            return None
        return job.services.artifacts.get(session, row.checkpoint_id)


def save(job: JobContext, data: bytes, *, progress: bool = True) -> None:
    """Replace the checkpoint of a job's stage.

    progress: whether it goes beyond what dead workers left, whose deaths then no longer count.
    Raises LeaseLostError if another worker holds the job.
    """
    _keep(job, data, progress=progress)
    reached("execute.checkpoint")
    job.services.artifacts.unlink_shredded(job.services.engine)


def _keep(
    job: JobContext, data: bytes, log: Log | None = None, *, progress: bool = True
) -> None:
    artifacts = job.services.artifacts

    def effect(tx: Transaction) -> None:
        row = held_job(tx, job.lease)
        if log is not None:
            log(tx, data)
        if row.checkpoint_id is not None:
            artifacts.shred(tx.session, row.checkpoint_id, CHECKPOINT)
        row.checkpoint_id = artifacts.put(tx.session, CHECKPOINT, data).id
        if progress:
            row.deaths = 1  # the running try counts as the first

    job.services.ledger.transact(effect, checkpoint=log is not None)


def discard(job: JobContext) -> None:
    """Destroy the checkpoint of a stage that must start over. Raises LeaseLostError."""
    job.services.ledger.transact(lambda tx: let_go(job, tx), checkpoint=False)


def draw_once(job: JobContext, log: Log) -> bytes:
    """Return the stage's 32 random bytes, drawn when it first began and kept for retries.

    log: appends the log's entry about them in the transaction that stores them. If they were
    drawn anew, anyone could kill a judge before an unwelcome verdict and get another seed.
    """
    drawn = load(job)
    if drawn is None:
        drawn = os.urandom(32)
        _keep(job, drawn, log)
    return drawn


def let_go(job: JobContext, tx: Transaction) -> None:
    """Destroy the checkpoint in the transaction that ends the stage."""
    row = held_job(tx, job.lease)
    if row.checkpoint_id is not None:
        job.services.artifacts.shred(tx.session, row.checkpoint_id, CHECKPOINT)
        row.checkpoint_id = None
        tx.session.flush()


def keep_before(services: Services, tx: Transaction, data: bytes | None) -> str | None:
    """Seal the model from before an update; return the artifact's id."""
    return None if data is None else services.artifacts.put(tx.session, BEFORE, data).id


def load_before(job: JobContext, session: Session) -> bytes | None:
    """Return the sealed model from before a job's update, None if nothing was kept."""
    row = session.exec(select(Job).where(Job.id == job.lease.job_id)).one()
    return None if row.before_id is None else job.services.artifacts.get(session, row.before_id)


def release_before(
    services: Services, tx: Transaction, job: Job, before_id: str | None = None
) -> None:
    """Destroy the model from before the update if the ended `job` was its last user.

    before_id: by the draft of its request, to which the log commits. The job's own is used only
    if nothing is certified, since whoever writes the table can change it.
    """
    for artifact_id in {one for one in (before_id, job.before_id) if one is not None}:
        others = select(Job.id).where(
            Job.before_id == artifact_id,
            Job.model_id == job.model_id,
            Job.id != job.id,
            col(Job.done_at).is_(None),
        )
        if tx.session.exec(others).first() is None:
            services.artifacts.shred(tx.session, artifact_id, BEFORE)


def drop_before(services: Services, session: Session, job_id: str) -> None:
    """Destroy the model from before the update at once, for all jobs: no comparison follows."""
    before_id = session.exec(select(Job.before_id).where(Job.id == job_id)).one()
    if before_id is None:
        return
    for job in session.exec(select(Job).where(Job.before_id == before_id)):
        job.before_id = None
    session.flush()
    services.artifacts.shred(session, before_id, BEFORE)


def clean(services: Services) -> None:
    """Unlink shredded files and rewrite the pages where destroyed keys may still be readable.

    A crash before this, or a reader that keeps old pages alive, leaves traces of the key:
    `clean_again`, called by the sweep, removes them.
    """
    services.artifacts.unlink_shredded(services.engine)
    scrub(services.engine)
