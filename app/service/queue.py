"""A model's queue: its head, whether the head waits for a batch, and the job's progress.

Jobs of one model run in the order of acceptance. Erasure requests at the head of the queue
may be held back until enough of them wait, and are then executed as one update: the models
before and after the deletion of a single record reveal that record.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, ScalarSelect, case, func, not_
from sqlmodel import Session, and_, col, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from app.schemas.models import ProgressView
from app.settings import MOST_COALESCED, Settings
from lethe.catalogue import data_of
from models import ErasureRequest, Job, Model
from models import job as jobs
from models.database.session import read_by_id
from models.database.types import clock

# A parked job waits for an answer from outside. It blocks no other job and gets no nudges.
PARKED = jobs.PARKED

# The kind of job that rebuilds a quarantined model, and the only one that runs on it.
MEND = "mend"

# Appended to the last error of a job that is retried without limit.
UNTIL_FIXED = "the job is retried until this is fixed"

# No request is held back in the last days before its deadline: they are the safety margin.
DEADLINE_MARGIN = timedelta(days=7)

_UNITS = {
    "training": "rounds",
    "step": "steps",
    "recovery": "rounds",
    "retraining": "rounds",
    "repetition": "rounds",
    "references": "models",
}


def head_of_queue(
    session: Session, model_id: int | ScalarSelect[int], now: datetime | None = None
) -> Job | None:
    """Return the job whose turn it is: the oldest unfinished one that is not parked.

    A job that was begun precedes an older one that has returned from parking: until an executed
    erasure is certified, nothing else may change the model. model_id: or a query for it. now:
    the database's time, if the caller has read it.
    """
    now = now or clock(session)
    begun = or_(
        col(Job.stage) != "execute",
        col(Job.step) > 1,
        and_(col(Job.lease_until).is_not(None), col(Job.lease_until) > now),
    )
    query = _open(model_id).order_by(case((begun, 0), else_=1), col(Job.seq)).limit(1)
    return session.exec(query).first()


def _open(model_id: int | ScalarSelect[int]) -> SelectOfScalar[Job]:
    return select(Job).where(
        Job.model_id == model_id, col(Job.done_at).is_(None), col(Job.stage) != PARKED
    )


def waiting_run(session: Session, head: Job) -> list[Job]:
    """Return the erasures that can be executed together with `head`, which comes first.

    They follow it without another job in between and use the same method; at most
    MOST_COALESCED. Empty if `head` is not an erasure that waits for its execution.
    """
    run, _ = _run(session, head)
    return [job for job, _ in run]


def is_held_back(session: Session, settings: Settings, head: Job, now: datetime) -> bool:
    """Return whether the job at the head of a queue still waits for a batch.

    The wait ends once its execution has begun, `batch_min_requests` wait, the oldest has waited
    for `batch_max_wait_seconds`, one of them is due within DEADLINE_MARGIN, or a job of another
    kind or method is behind them, so that no more can join.
    """
    if settings.batch_min_requests <= 1:
        return False
    if data_of(session.get_one(Model, head.model_id).config).in_rounds:
        return False  # its requests park, and would hold up the round that releases them
    run, closed = _run(session, head)
    if not run or run[0][1].state != "received":
        return False
    longest = timedelta(seconds=settings.batch_max_wait_seconds)
    return not (
        closed
        or len(run) >= settings.batch_min_requests
        or head.created_at + longest <= now
        or min(request.due_at for _, request in run) - DEADLINE_MARGIN <= now
    )


def _run(session: Session, head: Job) -> tuple[list[tuple[Job, ErasureRequest]], bool]:
    """Return the batch that begins with `head`, and whether it is closed to others."""
    if not _waits(head):
        return [], False
    first = session.get_one(ErasureRequest, head.request_id)
    run = [(head, first)]
    behind = _open(head.model_id).where(col(Job.seq) > head.seq).order_by(col(Job.seq))
    jobs = session.exec(behind.limit(MOST_COALESCED)).all()
    read_by_id(session, ErasureRequest, [job.request_id for job in jobs if job.request_id])
    for job in jobs:
        request = session.get(ErasureRequest, job.request_id) if _waits(job) else None
        if request is None or request.method != first.method or len(run) == MOST_COALESCED:
            return run, True
        run.append((job, request))
    return run, len(run) == MOST_COALESCED


def _waits(job: Job) -> bool:
    return job.kind == "erase" and job.stage == "execute" and job.step == 1


def waits_for_a_worker(settings: Settings, now: datetime) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions on jobs that need nothing but a worker, or have one.

    The others wait for a person, a client or a batch, and no worker may take them: they are
    parked, of a quarantined model, behind a job that killed its worker each time, or collected.
    What reports that workers are missing must not count them. Reads no sealed column: the
    health check of a container has no key. now: the database's time.
    """
    unfinished = (col(Job.done_at).is_(None), col(Job.stage) != PARKED)
    quarantined = select(Model.id).where(Model.state == "quarantined")
    with_request = select(Job.model_id).join(
        ErasureRequest, col(ErasureRequest.id) == col(Job.request_id)
    )
    given_up = with_request.where(
        *unfinished,
        col(Job.deaths) >= settings.max_tries,
        ErasureRequest.state == "needs-decision",
    )
    # As `is_held_back`, except that another job behind them does not end this wait: it is
    # counted itself.
    not_begun = and_(col(Job.kind) == "erase", col(Job.stage) == "execute", col(Job.step) == 1)
    longest = timedelta(seconds=settings.batch_max_wait_seconds)
    collected = (
        with_request.where(not_begun, col(Job.done_at).is_(None))
        .where(ErasureRequest.state == "received")
        .group_by(col(Job.model_id))
        .having(
            func.count() < settings.batch_min_requests,
            func.min(col(Job.created_at)) > now - longest,
            func.min(col(ErasureRequest.due_at)) > now + DEADLINE_MARGIN,
        )
    )
    return (
        *unfinished,
        or_(col(Job.kind) == MEND, col(Job.model_id).not_in(quarantined)),
        col(Job.model_id).not_in(given_up),
        or_(not_(not_begun), col(Job.model_id).not_in(collected)),
    )


def progress_of(job: Job) -> ProgressView | None:
    """Return a job's progress, None if it is done or its worker has not reported any."""
    if job.done_at is not None or job.phase is None:
        return None
    return ProgressView.model_validate(
        {
            "phase": job.phase,
            "done": job.phase_done,
            "total": job.phase_total,
            "unit": _UNITS[job.phase],
        }
    )


def training_progress(session: Session, model: Model) -> ProgressView | None:
    """Return the progress of a job that learns rows or mends, None if there is none.

    An erasure's progress is left out: only the holder of the request may see it.
    """
    found = (progress_of(job) for job in _learning(session, model))
    return next((shown for shown in found if shown is not None), None)


def first_fit_stalls(session: Session, model: Model) -> str | None:
    """Return the last error of a registered model's first fit, None if there is none.

    Its job is retried, so the model has not failed, but its user should learn what to mend.
    """
    if model.state != "registered":
        return None
    errors = (job.error for job in _learning(session, model) if job.error is not None)
    return next((f"{error}; {UNTIL_FIXED}" for error in errors), None)


def _learning(session: Session, model: Model) -> Sequence[Job]:
    learning = select(Job).where(
        Job.model_id == model.id, col(Job.kind).in_(("learn", MEND)), col(Job.done_at).is_(None)
    )
    return session.exec(learning.order_by(col(Job.seq))).all()
