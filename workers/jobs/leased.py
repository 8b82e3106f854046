"""Taking and renewing leases: one worker per job, one job per model at a time.

A message may arrive twice, late or never. So a message is only a nudge: the worker that takes a
job marks it in the database for a limited time, and renews the mark while it works.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

from sqlalchemy import update
from sqlmodel import Session, col, select

from app import logs, traces
from app.counters import STAGE_ERRORS, STAGES
from app.ledger.journal import record_request_event
from app.ledger.receipt import UnpublishedError
from app.ledger.transaction import Transaction
from app.service.context import Services
from app.service.decisions import AWAITING
from app.service.methods import last_step
from app.service.queue import MEND, UNTIL_FIXED, head_of_queue, is_held_back
from app.steps import reached
from app.traces import TraceSpan
from lethe.errors import LetheError
from models import ErasureRequest, Job, Model
from models.database.types import clock
from workers.jobs.endings import fail
from workers.leases import stalled
from workers.leases.lease import Lease, LeaseLostError, Turn
from workers.leases.retries import cool_down_s, is_outside

log = logging.getLogger(__name__)

UNOPENED = "the database has lost what opens its log entries: run `lethe log fsck`"


@contextmanager
def leased(
    services: Services, job_id: str, stage: str, turn: Turn | None = None
) -> Iterator[Lease | None]:
    """Hold a job while the block runs; yields None if it is not this worker's turn.

    turn: if it keeps a lease, that lease is used without a query.

    If the block raises, the job cools down and the sweep tries again. An environment error
    (disk, database, keys) is retried without limit, and so is every error once the erasure is
    executed: an acknowledged and executed erasure must be certified. An operator is told in
    time (`stalled`). Only an error of the computation itself, before anything was changed,
    fails a job after the configured number of tries.

    A worker that dies raises nothing. After as many deaths as there are tries, an erasure waits
    for an operator's decision and is not retried before it; any other job fails.
    """
    lease = _kept(turn) or _take(services, job_id, stage)
    if lease is None:
        yield None
        return
    with (
        logs.for_call(lease.call_id),
        STAGES.timed(stage),
        traces.stage(job_id, lease.call_id, stage, lease.kind, lease.tries) as span,
    ):
        log.info("job %s: %s begins, tries %d", job_id, stage, lease.tries)
        yield from _held(services, replace(lease, turn=turn), span)


def _kept(turn: Turn | None) -> Lease | None:
    """Take the kept lease out of a turn and return it, None if there is none."""
    if turn is None:
        return None
    lease, turn.lease = turn.lease, None
    return lease


def pass_on(services: Services, lease: Lease) -> None:
    """Keep the lease for the job's next stage in the same turn, or nudge the next job.

    Call it after the block: the receiver of the nudge must find the job free. A nudge for
    another job of the model is queued behind the work of other models: otherwise each of fifty
    models with one request would wait for several batches of one with a thousand. While other
    models keep every worker busy, the sweep's nudges give this model its turns: they wait only
    for those sent before them.
    """
    with services.reading() as session:
        following = head_of_queue(session, lease.model_id)
    if following is None:
        return
    stage, is_own = following.stage, following.id == lease.job_id
    is_held = following.lease_until is not None and following.lease_token == lease.token
    # At an unchanged stage the job is cooling down.
    if lease.turn is not None and is_own and is_held and stage != lease.stage:
        lease.turn.lease = replace(lease, stage=stage, tries=following.tries, begun=monotonic())
    else:
        services.dispatcher.nudge(following.id, stage, last=not is_own)


def _held(services: Services, lease: Lease, span: TraceSpan) -> Iterator[Lease]:
    job_id, stage = lease.job_id, lease.stage
    reached(f"{stage}.leased")
    stop = threading.Event()
    renew = partial(copy_context().run, _renew, services, lease, stop)
    renewer = threading.Thread(target=renew, daemon=True)
    renewer.start()
    try:
        yield lease
    except LeaseLostError as error:
        span.fail(type(error).__name__)
        log.warning("job %s: the lease was lost; nothing was committed", job_id)
    except Exception as error:
        STAGE_ERRORS.add(stage)
        span.fail(type(error).__name__)
        # Never the error's text: it may hold a row's values.
        name, outside = type(error).__name__, is_outside(error)
        log.error("job %s: %s at %s, tries %s", job_id, name, stage, lease.tries)
        stop.set()
        renewer.join()  # otherwise it would undo the cool-down
        title = f"{error.title}: " if isinstance(error, LetheError) else ""
        services.ledger.transact(
            lambda tx: _cool_down(services, tx, lease, name, outside, title)
        )
    finally:
        stop.set()
        renewer.join()


def _take(services: Services, job_id: str, stage: str) -> Lease | None:
    """Return the lease, or None if it is not this worker's turn.

    Raises UnpublishedError, and releases the job, if no checkpoint can be signed: the lease was
    committed, but this worker is alive.
    """
    with services.reading() as session:
        # Most messages are for a job whose turn it is not: they must not wait for the log.
        if _whose_turn(services, session, job_id, stage, clock(session)) is None:
            return None
    taken: list[Lease | None] = []
    try:
        services.ledger.transact(lambda tx: taken.append(_acquire(services, tx, job_id, stage)))
    except UnpublishedError as error:
        lease, name, title = taken[-1], type(error).__name__, f"{error.title}: "
        if lease is not None:
            services.ledger.transact(
                lambda tx: _cool_down(services, tx, lease, name, True, title),
                checkpoint=False,
            )
        raise
    return taken[-1]


def _whose_turn(
    services: Services, session: Session, job_id: str, stage: str, now: datetime
) -> Job | None:
    """Return the job if it may be taken at this stage now, else None."""
    own = select(col(Job.model_id)).where(Job.id == job_id).scalar_subquery()
    job = head_of_queue(session, own, now)
    if job is None or (job.id, job.stage) != (job_id, stage):
        return None
    if job.lease_until is not None and job.lease_until > now:
        return None
    if session.get_one(Model, job.model_id).state == "quarantined" and job.kind != MEND:
        return None
    return None if is_held_back(session, services.settings, job, now) else job


def _acquire(services: Services, tx: Transaction, job_id: str, stage: str) -> Lease | None:
    session, now = tx.session, tx.now
    job = _whose_turn(services, session, job_id, stage, now)
    if job is None:
        return None
    if job.request_id is not None:
        request = session.get_one(ErasureRequest, job.request_id)
        if not request.event_key:
            # Nothing of it can be logged: no try would be counted, and none could end.
            STAGE_ERRORS.add(stage)
            log.error("job %s: %s", job.id, UNOPENED)
            fail(services, tx, job, UNOPENED)
            return None
    if job.deaths >= _most_deaths(services, session, job):
        _give_up(services, tx, job)
        return None
    job.lease_token += 1
    job.tries += 1
    job.deaths += 1
    job.lease_until = now + timedelta(seconds=services.settings.lease_seconds)
    if job.request_id is not None and stage == "execute":
        request = session.get_one(ErasureRequest, job.request_id)
        if request.state == "received":
            request.state = "executing"
            record_request_event(tx, request, "request.executing", {})
    session.flush()
    return Lease(
        job_id=job.id,
        token=job.lease_token,
        stage=stage,
        step=job.step,
        kind=job.kind,
        model_id=job.model_id,
        request_id=job.request_id,
        contribution_id=job.contribution_id,
        tries=job.tries,
        call_id=logs.well_formed(job.call_id),  # a tampered row must not write log lines
    )


def _most_deaths(services: Services, session: Session, job: Job) -> int:
    """Return how many worker deaths a stage is allowed; a step beyond that falls back."""
    most = services.settings.max_tries
    gives_way = 1 < job.step < last_step(session.get_one(Model, job.model_id).config)
    return 2 * most if gives_way and job.stage == "execute" else most


def is_given_up(services: Services, session: Session, job: Job) -> bool:
    """Return whether a job cost too many workers and waits for a decision."""
    if job.deaths < _most_deaths(services, session, job) or job.request_id is None:
        return False
    return session.get_one(ErasureRequest, job.request_id).state == AWAITING


def _give_up(services: Services, tx: Transaction, job: Job) -> None:
    """End a job that kills its worker each time, or make it wait for a decision.

    The next try would kill the next worker, and delay other models' work. No error was
    reported, so the cause is unknown: the system may have killed the process for its memory, or
    a library crashed.
    """
    why = f"its worker died {job.deaths} times at {job.stage}, of memory perhaps"
    if job.request_id is None:
        log.error("job %s: %s; it is ended", job.id, why)
        fail(services, tx, job, f"{why}: see the workers' logs")
        return
    if stalled.escalate(tx, job, why, at_once=True):
        log.error("job %s: %s; it waits for a decision", job.id, why)


def _renew(services: Services, lease: Lease, stop: threading.Event) -> None:
    seconds = services.settings.lease_seconds
    while not stop.wait(seconds / 3):
        try:
            with services.engine.begin() as connection:
                until = clock(connection) + timedelta(seconds=seconds)
                connection.execute(
                    update(Job)
                    .where(col(Job.id) == lease.job_id, col(Job.lease_token) == lease.token)
                    .where(col(Job.lease_until).is_not(None))
                    .values(lease_until=until)
                )
        except Exception as error:
            # A missed renewal is harmless until the lease runs out; the next may succeed.
            log.warning("lease of job %s not renewed: %s", lease.job_id, type(error).__name__)


def _cool_down(
    services: Services, tx: Transaction, lease: Lease, name: str, outside: bool, title: str
) -> None:
    job = tx.session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if job.lease_token != lease.token or job.done_at is not None:
        return
    if job.stage != lease.stage:  # the stage was committed; the next stage is not leased yet
        job.lease_until = None
        job.deaths = 0
        return
    job.error = f"{title}{name} at {lease.stage}"
    job.deaths = max(0, job.deaths - 1)  # the worker is alive
    changed = lease.stage != "execute" or (lease.step > 1 and lease.kind != MEND)
    if job.tries >= services.settings.max_tries and not (outside or changed):
        fail(services, tx, job, f"{name} at {lease.stage}: see the service's log")
    else:
        job.lease_until = tx.now + timedelta(seconds=cool_down_s(job.tries))
        if job.tries >= services.settings.max_tries:
            stalled.escalate(tx, job, f"{job.error}; {UNTIL_FIXED}")
