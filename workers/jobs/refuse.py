"""A method's refusal, recorded: the request or contribution ends with the reason."""

from sqlmodel import select

from app.ledger.sequencer import Transaction
from app.service.context import Services
from models import Job
from workers.jobs.lease import Lease, LeaseLostError, fail


def refuse(services: Services, lease: Lease, reason: str) -> None:
    """End the leased job as refused. Nothing of the model was changed.

    Raises:
        LeaseLostError: Another worker holds the job now.
    """

    def effect(tx: Transaction) -> None:
        job = tx.session.exec(select(Job).where(Job.id == lease.job_id)).one()
        if job.lease_token != lease.token or job.stage != lease.stage:
            raise LeaseLostError(lease.job_id)
        fail(services, tx, job, reason, state="refused")

    services.ledger.transact(effect)
