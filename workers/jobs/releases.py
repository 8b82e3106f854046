"""Releases: questions to clients about records to erase, their answers, and escalation."""

import uuid
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func
from sqlmodel import Session, col, select

from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.service.context import Services
from app.service.queue import PARKED
from app.service.releases import close_releases, resume, shred_answer
from models import ErasureRequest, FeatureBlock, Job, Record, Release
from models.database.types import clock
from workers.leases.lease import JobContext, advance
from workers.leases.stalled import ESCALATION_MARGIN


def ask(
    tx: Transaction,
    request: ErasureRequest,
    owned: Mapping[int, set[str]],
    *,
    removed: Mapping[int, set[str]],
    whole: Collection[int],
) -> bool:
    """Ask clients for what is missing to remove these records; return whether anything is.

    A block that is removed as a whole needs no answer: because this request alone, with what is
    `removed` earlier in the same update, covers it, or because an operator decided it (`whole`,
    ids of subjects).
    """
    missing = False
    for subject, ids in owned.items():
        block = tx.session.get_one(FeatureBlock, subject)
        if subject in whole or block.rows == len(ids | removed.get(subject, set())):
            continue
        release = tx.session.exec(
            select(Release).where(
                Release.request_id == request.id, Release.subject_id == subject
            )
        ).first()
        if release is None:
            release = Release(
                id=str(uuid.uuid4()),
                request_id=request.id,
                model_id=request.model_id,
                subject_id=subject,
                created_at=tx.now,
                escalates_at=request.due_at - ESCALATION_MARGIN,
            )
            tx.session.add(release)
        # Its records were erased in another way, and there are more now.
        elif release.state == "done":
            release.state = "open"
        missing = missing or release.state == "open"
    tx.session.flush()
    return missing


def dropped_subjects(session: Session, request_id: str) -> set[int]:
    """Return the subjects whose blocks an operator decided to remove for a request."""
    query = select(Release.subject_id).where(
        Release.request_id == request_id, Release.state == "dropped"
    )
    return set(session.exec(query))


def park(tx: Transaction, job: Job, request: ErasureRequest, why: str) -> None:
    """Make a job wait for its clients; it is queued again when they answer."""
    job.stage, job.tries, job.deaths, job.lease_until = PARKED, 0, 0, None
    request.state, request.reason = "awaiting-client", None
    record_request_event(tx, request, "request.awaiting", {"for": why})
    tx.session.flush()


def ask_anew(job: JobContext, tx: Transaction, release_id: str) -> None:
    """Discard an answer that does not fit its block; the job waits for another."""
    services, lease, session = job.services, job.lease, tx.session
    release = session.get_one(Release, release_id)
    shred_answer(services, session, release)
    release.state = "open"
    request = session.get_one(ErasureRequest, lease.request_id)
    request.state = "awaiting-client"
    record_request_event(tx, request, "request.awaiting", {"for": "an answer that fits"})
    session.flush()
    advance(tx, lease, PARKED)


def settle(
    services: Services, tx: Transaction, requests: Sequence[str], subjects: Sequence[int]
) -> list[tuple[str, str]]:
    """Close the questions of executed requests, and those that no longer need an answer.

    Returns the jobs to nudge. A request that lost all its records to these requests is refused
    at its turn; one that now covers all that is left of a block needs no answer for it.
    """
    session = tx.session
    session.flush()
    close_releases(services, tx, *requests)
    nudges = []
    others = select(Release).where(
        col(Release.subject_id).in_(subjects),
        col(Release.state) != "done",
        col(Release.request_id).not_in(requests),
    )
    for release in session.exec(others).all():
        own = select(func.count()).where(
            Record.claimed_by == release.request_id, Record.subject_id == release.subject_id
        )
        block = session.get(FeatureBlock, release.subject_id)
        if session.exec(own).one() not in (0, 0 if block is None else block.rows):
            continue
        shred_answer(services, session, release)
        release.state = "done"
        session.flush()
        if (job := resume(tx, release)) is not None:
            nudges.append(job)
    session.flush()
    return nudges


def wake(services: Services) -> None:
    """Resume requests whose companions in a dropped block no longer wait for an answer.

    An answer resumes only its own request. A request parked because of that one is resumed
    here, also if that one was withdrawn or refused.
    """
    with services.reading() as session:
        ready = _ready(session)
    if ready:
        services.ledger.transact(_wake, checkpoint=False)


def _ready(session: Session) -> list[str]:
    dropped = (
        select(Job.id, Job.request_id)
        .join(Release, col(Release.request_id) == col(Job.request_id))
        .join(ErasureRequest, col(ErasureRequest.id) == col(Job.request_id))
        .where(Job.stage == PARKED, Release.state == "dropped")
        # Others wait for a decision or a review.
        .where(col(ErasureRequest.state).in_(("awaiting-client", "escalated")))
        .distinct()
    )
    ready = []
    for job_id, request_id in session.exec(dropped).all():
        blocks = select(Release.subject_id).where(
            Release.request_id == request_id, Release.state == "dropped"
        )
        companions = select(Record.claimed_by).where(
            col(Record.subject_id).in_(blocks), col(Record.claimed_by).is_not(None)
        )
        waiting = select(Release.id).where(
            col(Release.request_id).in_(companions), Release.state == "open"
        )
        if session.exec(waiting).first() is None:
            ready.append(job_id)
    return ready


def _wake(tx: Transaction) -> None:
    for job_id in _ready(tx.session):
        tx.session.exec(select(Job).where(Job.id == job_id)).one().stage = "execute"
    tx.session.flush()


def escalate_silence(services: Services) -> None:
    """Escalate to the operator, in the log, clients that have not answered in time."""
    with services.reading() as session:
        due = _silent(session)
    if due:
        services.ledger.transact(_escalate)


def _silent(session: Session) -> list[str]:
    query = (
        select(ErasureRequest.id)
        .join(Release, col(Release.request_id) == col(ErasureRequest.id))
        .where(
            ErasureRequest.state == "awaiting-client",
            Release.state == "open",
            col(Release.escalates_at) <= clock(session),
        )
        .distinct()
    )
    return list(session.exec(query))


def _escalate(tx: Transaction) -> None:
    for request_id in _silent(tx.session):
        request = tx.session.get_one(ErasureRequest, request_id)
        request.state = "escalated"
        record_request_event(tx, request, "request.escalated", {"reason": "client-silent"})
    tx.session.flush()
