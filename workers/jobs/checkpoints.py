"""Where a long training goes on after its worker died: sealed bytes that the job names.

They hold weights that may have seen what is being erased, so they go with the stage.
"""

import os
from collections.abc import Callable

from sqlmodel import Session, select

from app.ledger.sequencer import Transaction
from app.service.context import Services
from app.steps import reached
from models import Job
from workers.jobs.lease import Lease, LeaseLostError

Log = Callable[[Transaction, bytes], None]


def load(services: Services, session: Session, lease: Lease) -> bytes | None:
    """Return the last checkpoint of a job's stage, None at its beginning."""
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if job.checkpoint_id is None:
        return None
    return services.artifacts.get(session, job.checkpoint_id)


def save(services: Services, lease: Lease, data: bytes) -> None:
    """Replace the checkpoint of a job's stage.

    Raises:
        LeaseLostError: Another worker holds the job now: it goes on, this one stops.
    """
    _keep(services, lease, data)
    reached("execute.checkpoint")
    with services.reading() as session:
        services.artifacts.unlink_shredded(session)


def _keep(services: Services, lease: Lease, data: bytes, log: Log | None = None) -> None:
    def effect(tx: Transaction) -> None:
        job = _held(tx, lease)
        if log is not None:
            log(tx, data)
        if job.checkpoint_id is not None:
            services.artifacts.shred(tx.session, job.checkpoint_id)
        job.checkpoint_id = services.artifacts.put(tx.session, "checkpoint", data).id
        job.deaths = 1  # the running try: what got further did not end its workers in vain

    services.ledger.transact(effect, checkpoint=log is not None)


def discard(services: Services, lease: Lease) -> None:
    """Destroy the checkpoint of a stage that must begin anew. Raises LeaseLostError."""
    services.ledger.transact(lambda tx: let_go(services, tx, lease), checkpoint=False)


def draw_once(services: Services, lease: Lease, log: Log) -> bytes:
    """Return the stage's 32 random bytes: drawn when it first began, the same ever after.

    log: writes what the log says of them, with the transaction that keeps them. Were they
    drawn anew, who kills a judge before an unwelcome verdict could try another.
    """
    with services.reading() as session:
        drawn = load(services, session, lease)
    if drawn is None:
        drawn = os.urandom(32)
        _keep(services, lease, drawn, log)
    return drawn


def let_go(services: Services, tx: Transaction, lease: Lease) -> None:
    """Destroy the checkpoint with the transaction that ends the stage."""
    job = _held(tx, lease)
    if job.checkpoint_id is not None:
        services.artifacts.shred(tx.session, job.checkpoint_id)
        job.checkpoint_id = None
        tx.session.flush()


def _held(tx: Transaction, lease: Lease) -> Job:
    job = tx.session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if job.lease_token != lease.token or job.stage != lease.stage:
        raise LeaseLostError(lease.job_id)
    return job
