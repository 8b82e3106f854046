"""What was before an update, kept sealed until the last of its requests has ended.

The verifier compares what comes after with it. It may hold what is erased, so it lives no
longer than that: one artifact, shared by the requests of an update.
"""

from sqlmodel import Session, col, select

from app.ledger.sequencer import Transaction
from app.service.context import Services
from models import Job


def keep(services: Services, tx: Transaction, data: bytes | None) -> str | None:
    """Seal what was before an update; return the artifact's id."""
    return None if data is None else services.artifacts.put(tx.session, "before", data).id


def let_go(services: Services, tx: Transaction, job: Job) -> None:
    """Destroy it with the last job that it is for, which has just ended."""
    if job.before_id is None:
        return
    others = select(Job.id).where(
        Job.before_id == job.before_id, Job.id != job.id, col(Job.done_at).is_(None)
    )
    if tx.session.exec(others).first() is None:
        services.artifacts.shred(tx.session, job.before_id)


def drop(services: Services, session: Session, job_id: str) -> None:
    """Destroy it at once, for all jobs: nothing is compared with it any more."""
    before_id = session.exec(select(Job.before_id).where(Job.id == job_id)).one()
    if before_id is None:
        return
    for job in session.exec(select(Job).where(Job.before_id == before_id)):
        job.before_id = None
    session.flush()
    services.artifacts.shred(session, before_id)
