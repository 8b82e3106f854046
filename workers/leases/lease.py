"""A held job and its moves between stages: nothing commits without the lease.

Each effect commits together with `WHERE lease_token = mine`. A worker that was thought dead and
comes back finds its token outdated and its transaction rolled back.

A worker that continues with the next stage keeps the lease, instead of committing its release
and taking it again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from sqlalchemy import bindparam, case, null, tuple_, update
from sqlmodel import Session, col, select

from app.ledger.transaction import Transaction
from app.service.context import Services
from app.service.decisions import AWAITING
from app.service.queue import PARKED
from models import ErasureRequest, Job, Model

# These stages follow execution without another message, while they are quick.
FOLLOWING = ("verify", "certify")

# The progress of a stage that has just begun.
NO_PROGRESS = {"phase": None, "phase_done": None, "phase_total": None}
# The state in which a request resumes, by the stage of its job.
RESUMED = {"verify": "verifying", "certify": "verifying", "execute": "escalated"}


class LeaseLostError(Exception):
    """Another worker holds the job now; the result of this one is not committed."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A held job. `token` is the fencing token that every commit must still match.

    step: of the policy's ladder, as in `Job.step`. begun: when it was taken, by its worker's
    monotonic clock. turn: None if the lease is released after this stage in any case.
    """

    job_id: str
    token: int
    stage: str
    step: int
    kind: str
    model_id: int
    request_id: str | None
    contribution_id: str | None
    tries: int
    call_id: str | None
    begun: float = field(default_factory=monotonic, compare=False)
    turn: "Turn | None" = field(default=None, compare=False)


@dataclass(slots=True)
class Turn:
    """Stages of a job that one worker runs one after the other.

    ends: no further stage begins after this time of the monotonic clock. seconds: a lease's
    duration without renewal. lease: the lease kept for the next stage, if any.
    """

    ends: float
    seconds: int
    lease: Lease | None = None

    def keeps(self, stage: str) -> bool:
        """Return whether a job that moves to this stage now keeps its lease."""
        return stage in FOLLOWING and monotonic() < self.ends


@dataclass(frozen=True, slots=True)
class JobContext:
    """A leased job. model: its row; for a job that executes, as it was compared with the log.

    The publisher computes from this object and never rereads the row before. Its transaction
    compares its own reading once more (`publish.unchanged`).
    """

    services: Services
    lease: Lease
    model: Model


def load_job(services: Services, session: Session, lease: Lease) -> JobContext:
    """Return a leased job with its model's row as stored, not compared with the log."""
    return JobContext(services, lease, session.get_one(Model, lease.model_id))


def held_job(tx: Transaction, lease: Lease) -> Job:
    """Return the row of a leased job.

    Raises LeaseLostError if another worker holds the job now; the transaction must roll back.
    """
    job = tx.session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if job.lease_token != lease.token or job.stage != lease.stage:
        raise LeaseLostError(lease.job_id)
    return job


def queued_behind(session: Session, job_id: str, stage: str) -> list[Job]:
    """Return the other unfinished jobs of a job's model at `stage`, in their order.

    While a begun job is unfinished, nothing else of its model is executed: any job executed and
    not yet certified was executed together with it.
    """
    job = session.exec(select(Job).where(Job.id == job_id)).one()
    behind = (
        select(Job)
        .where(
            Job.model_id == job.model_id,
            Job.id != job.id,
            col(Job.stage) == stage,
            col(Job.done_at).is_(None),
        )
        .order_by(col(Job.seq))
    )
    return list(session.exec(behind))


def advance(
    tx: Transaction,
    lease: Lease,
    stage: str,
    others: Sequence[tuple[str, int]] = (),
    **values: object,
) -> None:
    """Commit the job's move to its next stage, if the lease is still valid.

    The lease is kept for that stage if it follows in the same turn, otherwise released.
    others: jobs, with their tokens, that move with it because they were executed together.

    Raises LeaseLostError if it is not valid, or one of the others has changed; the transaction
    must roll back.
    """
    done = {"done_at": tx.now} if stage == "done" else {}
    moved = [(lease.job_id, lease.token), *others]
    _move(tx, moved, lease.stage, {"stage": stage, **done, **values, **_kept(tx, lease, stage)})


def _kept(tx: Transaction, lease: Lease, stage: str) -> dict[str, object]:
    """Return the column values of a job that this worker keeps, as if it had just taken it."""
    if lease.turn is None or not lease.turn.keeps(stage):
        return {}
    until = tx.now + timedelta(seconds=lease.turn.seconds)
    own = col(Job.id) == lease.job_id
    return {
        "lease_until": case((own, until), else_=null()),
        "tries": case((own, 1), else_=0),
        "deaths": case((own, 1), else_=0),
    }


def follow(
    tx: Transaction,
    drafts: Mapping[tuple[str, int], str],
    since: str,
    stage: str,
    **values: object,
) -> None:
    """Move other jobs, executed together with the leased one, from stage `since` to `stage`.

    drafts: the draft of each job, by its id and token. The token is the one under which it was
    executed: no worker takes it while it is parked or behind the leased job in the queue, so
    one lease protects all.

    Raises LeaseLostError if one of them has changed since; the transaction must roll back.
    """
    if not drafts:
        return
    tx.session.connection().execute(
        update(Job).where(col(Job.id) == bindparam("job")).values(draft_id=bindparam("draft")),
        [{"job": job_id, "draft": draft_id} for (job_id, _), draft_id in drafts.items()],
    )
    _move(tx, [*drafts], since, {"stage": stage, **values})


def _move(
    tx: Transaction, moved: Sequence[tuple[str, int]], since: str, values: dict[str, object]
) -> None:
    tx.session.flush()  # otherwise expiring below would lose unflushed changes
    result = tx.session.connection().execute(
        update(Job)
        .where(
            tuple_(col(Job.id), col(Job.lease_token)).in_(moved),
            col(Job.stage) == since,
            col(Job.done_at).is_(None),
        )
        .values({"tries": 0, "deaths": 0, "lease_until": None, **NO_PROGRESS, **values})
    )
    if result.rowcount != len(moved):
        raise LeaseLostError(moved[0][0])
    tx.session.expire_all()
    _resume(tx.session, [job_id for job_id, _ in moved], str(values["stage"]))


# Batch size: the requests of one model that a stage can process in STAGE_S.
#
# A worker runs one stage at a time. Work for other models waits until it ends, so a backlog of
# one model must not occupy a worker for longer.
STAGE_S = 0.75
LEAST = 64  # minimum batch: each update judges all rows of its model once more


class Pace:
    """Seconds per request of this process's latest stages, by model and stage."""

    def __init__(self) -> None:
        self._seconds: dict[int, dict[str, float]] = {}

    def note(self, lease: Lease, requests: int) -> None:
        """Record that the lease's stage, which ends now, processed so many requests.

        Small batches are ignored: their time is mostly fixed cost.
        """
        if requests >= LEAST:
            each = (monotonic() - lease.begun) / requests
            self._seconds.setdefault(lease.model_id, {})[lease.stage] = each

    def most(self, model_id: int) -> int:
        """Return the maximum batch size of a model, at least LEAST."""
        stages = self._seconds.get(model_id)
        return LEAST if not stages else max(LEAST, int(STAGE_S / max(stages.values())))


PACE = Pace()


def _resume(session: Session, job_ids: Sequence[str], stage: str) -> None:
    """Clear the reason for waiting of jobs that moved to another stage: none is stalled now."""
    if stage == PARKED:
        return
    query = (
        select(ErasureRequest)
        .join(Job, col(Job.request_id) == col(ErasureRequest.id))
        .where(col(Job.id).in_(job_ids), col(ErasureRequest.reason).is_not(None))
    )
    for request in session.exec(query):
        request.reason = None
        if request.state == AWAITING:
            request.state = RESUMED[stage]
    session.flush()  # otherwise a later expiry of the session loses it
