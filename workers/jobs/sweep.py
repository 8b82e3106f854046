"""The sweep: find and resume what a crash or a lost message left behind."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import delete
from sqlmodel import Session, col, select

from app.ledger.transaction import Transaction
from app.notices import outbox
from app.service import review
from app.service.context import Services
from app.service.desk import reminders
from app.service.intake import following as intake
from app.service.queue import head_of_queue, is_held_back
from app.vault.scrub import scrub
from models import Artifact, Job, RetentionRemoval, UsedNonce
from models.database.types import clock
from workers.families import base as family
from workers.jobs import releases
from workers.jobs.leased import is_given_up
from workers.leases import stalled
from workers.method_audits import sweep as audit_sweep
from workers.silos import table as silo_table

ORPHAN_AGE = timedelta(hours=1)  # an older file without a row was left by a crash
NUDGE_AGE = timedelta(seconds=2)  # younger jobs have their own nudge on the way


def run(services: Services) -> int:
    """Nudge every job or audit that could run and does not; return how many.

    If one step fails, such as by a damaged row, the others are taken all the same, and the last
    one's error is raised at the end.
    """
    nudged: list[int] = []
    steps: list[Callable[[], object]] = [
        services.ledger.publish_checkpoint,  # a crash may have left entries without one
        partial(releases.escalate_silence, services),
        partial(releases.wake, services),
        partial(review.end_cooling_off, services),
        partial(reminders.remind, services, partial(outbox.owe_overdue, services)),
        *(partial(kind.sweep, services) for kind in family.every()),
        partial(silo_table.sweep, services),
        lambda: nudged.append(nudge_stuck(services)),
        partial(forget_nonces, services),
        partial(intake.forget, services),
        lambda: nudged.append(audit_sweep.sweep(services)),
        partial(clean_again, services, ORPHAN_AGE),
    ]
    with ExitStack() as stack:
        for step in reversed(steps):
            stack.callback(step)
    return sum(nudged)


def nudge_stuck(services: Services) -> int:
    """Nudge every job that could run and does not; return how many.

    Only the head of each model's queue can run, so only those are nudged, and not while they
    are held back: this wakes them when the wait is over. A second nudge for the same job finds
    the lease taken and does nothing.
    """
    unfinished = select(Job.model_id).where(col(Job.done_at).is_(None)).distinct()
    with services.reading() as session:
        now = clock(session)
        models = session.exec(unfinished).all()
        heads = [head_of_queue(session, model_id) for model_id in models]
        found = [
            (job.id, job.stage)
            for job in heads
            if job is not None and _is_stuck(services, session, job, now)
        ]
    for job_id, stage in found:
        services.dispatcher.nudge(job_id, stage)
    return len(found)


def _is_stuck(services: Services, session: Session, job: Job, now: datetime) -> bool:
    held = job.lease_until is not None and job.lease_until >= now
    young = job.created_at >= now - NUDGE_AGE
    if held or young or is_held_back(session, services.settings, job, now):
        return False
    # A job that was given up is not retried before a decision, but those behind it are
    # escalated in time.
    return not is_given_up(services, session, job) or stalled.is_due(session, job, now)


def forget_nonces(services: Services) -> None:
    """Delete the nonces of signatures that have expired."""
    with services.reading() as session:
        late = col(UsedNonce.expires_at) < clock(session)
        if session.exec(select(UsedNonce.keyid).where(late).limit(1)).first() is None:
            return
    services.ledger.transact(_forget_nonces, checkpoint=False)


def _forget_nonces(tx: Transaction) -> None:
    tx.session.connection().execute(delete(UsedNonce).where(col(UsedNonce.expires_at) < tx.now))


# Longer than any reader lives, so at least one scrub follows the last of them.
SCRUB_FOR = timedelta(minutes=10)


def clean_again(services: Services, orphan_age: timedelta) -> None:
    """Repeat what `clean`, or a retention run, may have missed.

    That is orphans of crashes, and old row versions that a reader needed.
    """
    services.artifacts.unlink_shredded(services.engine)
    services.artifacts.unlink_orphans(services.engine, orphan_age)
    with services.reading() as session:
        since = clock(session) - SCRUB_FOR
        recent = select(Artifact.id).where(col(Artifact.shredded_at) > since)
        # A run may destroy names and contacts, and no file.
        run = select(RetentionRemoval.at).order_by(col(RetentionRemoval.id).desc())
        ended = session.exec(run.limit(1)).first()
        owed = session.exec(recent.limit(1)).first() is not None
        owed = owed or (ended is not None and ended > since)
    if owed:
        scrub(services.engine)
