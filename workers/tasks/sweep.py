"""The sweep: what a crash or a lost message left behind is found here."""

from datetime import timedelta

from sqlalchemy import delete, func
from sqlmodel import col, or_, select

from app.ledger.sequencer import Transaction
from app.service.context import Services
from models import Job, UsedNonce
from models.types import utcnow
from workers.tasks.cleanup import clean_again

ORPHAN_AGE = timedelta(hours=1)  # a file this old without a row was left by a crash
NUDGE_AGE = timedelta(seconds=2)  # younger jobs have a nudge of their own on the way


def run(services: Services) -> int:
    """Nudge every job that could run and does not; return how many.

    Only the oldest unfinished job of each model can run, so only those are nudged. Whatever
    was nudged twice finds the lease taken and does nothing.
    """
    services.ledger.publish_checkpoint()  # a crash may have left entries without one
    now = utcnow()
    heads = (
        select(func.min(col(Job.seq)))
        .where(col(Job.done_at).is_(None))
        .group_by(col(Job.model_id))
    )
    stuck = select(Job.id, Job.stage).where(
        col(Job.seq).in_(heads),
        or_(col(Job.lease_until).is_(None), col(Job.lease_until) < now),
        col(Job.created_at) < now - NUDGE_AGE,
    )
    with services.reading() as session:
        found = list(session.exec(stuck))
        expired = session.exec(
            select(UsedNonce.keyid).where(col(UsedNonce.expires_at) < now).limit(1)
        ).first()
    if expired is not None:
        services.ledger.transact(_forget_nonces, checkpoint=False)
    for job_id, stage in found:
        services.dispatcher.nudge(job_id, stage)
    clean_again(services, ORPHAN_AGE)
    return len(found)


def _forget_nonces(tx: Transaction) -> None:
    tx.session.connection().execute(delete(UsedNonce).where(col(UsedNonce.expires_at) < tx.now))


def nudge_next(services: Services, model_id: int) -> None:
    """Nudge the job that now heads a model's queue, if there is one."""
    query = (
        select(Job.id, Job.stage)
        .where(Job.model_id == model_id, col(Job.done_at).is_(None))
        .order_by(col(Job.seq))
        .limit(1)
    )
    with services.reading() as session:
        following = session.exec(query).first()
    if following is not None:
        services.dispatcher.nudge(*following)
