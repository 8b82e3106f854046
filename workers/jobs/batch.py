"""Select the erasure requests that are executed together, and the records of each.

They are taken in queue order; each starts from the set left by the one before. So each
certificate is as strong as if its request had been executed alone, and the sets form a chain
from the version before the update to the version after it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sqlmodel import Session, col, select

from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.reconcile.inputs import changed_since_received
from app.schemas.requests import Scope
from app.service.queue import waiting_run
from app.service.review import HELD
from app.service.scope import Claimed, claimed_by, forget_set
from app.settings import MOST_COALESCED
from models import ErasureRequest, Job, Record
from models.database.session import read_by_id
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs.releases import ask, dropped_subjects, park
from workers.leases.lease import PACE, JobContext, held_job
from workers.lineage.chain import BatchMember, owned_by_subject
from workers.lineage.logged import OTHER_SCOPE, OtherRequestError

# Each draft names the commitments that the other requests removed: this bounds its size.
MOST_RECORDS = 4096


def collect(job: JobContext) -> list[BatchMember]:
    """Take the requests that are executed under this lease; the leased one comes first.

    Waiting requests are executed together, up to the limit of `pace`, unless an operator wants
    them one at a time; until then each can be withdrawn. The last tries go alone: an error
    caused by another request must not fail this one. A request whose records are all erased by
    earlier ones of the update is left out, and refused at its own turn. A request that needs a
    client's answer is parked; if the leased one is parked, the result is empty.

    Raises:
        RefusedError: An earlier request erased everything that the leased one names.
        OtherRequestError: The row of the leased one differs from what was received.
        LeaseLostError: Another worker holds the job now.
    """
    settings = job.services.settings
    together = settings.coalesce or settings.batch_min_requests > 1
    alone = not together or job.lease.tries >= settings.max_tries
    # Only the other requests get log entries: they begin here; the leased one has begun.
    members = job.services.ledger.transact(
        lambda tx: _take(tx, job, alone), checkpoint=not alone
    )
    if members is None:
        return []
    if not members or members[0].job_id != job.lease.job_id:
        raise RefusedError("an earlier request erased all that this one asks for")
    return members


def _take(tx: Transaction, leased: JobContext, alone: bool) -> list[BatchMember] | None:
    session, lease = tx.session, leased.lease
    head = held_job(tx, lease)
    assert head.request_id is not None
    asks = family.of(leased.model).asks(leased.model)
    # An operator can only decide to drop a block of a model whose clients are asked for rows.
    whole = dropped_subjects(session, head.request_id) if asks else set()
    if whole:
        # A block that an operator decided to drop may hold records of other requests: those are
        # executed together with this one, each with its own certificate, or none is executed
        # yet.
        run = [head, *_companions(session, head, whole)]
    else:
        run = [head] if alone else waiting_run(session, head)[: _most(leased)]
    requests = {job.id: job.request_id for job in run if job.request_id is not None}
    claims = claimed_by(session, lease.model_id, list(requests.values()))
    asked = read_by_id(session, ErasureRequest, list(requests.values()))
    changed = changed_since_received(leased.services.ledger, session, leased.model, asked)
    if head.request_id in changed:
        raise OtherRequestError(OTHER_SCOPE)
    members: list[BatchMember] = []
    taken: set[str] = set()
    for job in run:
        if job.request_id in changed:
            break  # refused with the reason at its own turn
        member = _member(session, lease.model_id, job, claims, taken)
        if member is None:
            if job.id == head.id:
                break
            # It is next and will be refused, so it need not wait for its clients.
            _begin(tx, job, session.get_one(ErasureRequest, job.request_id))
            continue
        if members and not whole and len(taken) + len(member.salts) > MOST_RECORDS:
            break
        request = session.get_one(ErasureRequest, member.request_id)
        if asks and dropped_subjects(session, request.id) - whole:
            break  # executed with its own companions, at its turn
        if job.id != head.id:
            member = replace(member, token=_begin(tx, job, request))
        if asks and ask(
            tx, request, member.owned(), removed=owned_by_subject(members), whole=whole
        ):
            park(tx, job, request, "the statistics of the records, from their clients")
            if job.id == head.id:
                return None
            if whole:
                park(tx, head, session.get_one(ErasureRequest, head.request_id), "the others")
                return None
            continue
        members.append(member)
        taken.update(member.salts)
    session.flush()
    return members


def _most(job: JobContext) -> int:
    """Return the maximum number of requests that are executed together.

    A family that judges requests together executes any number of them at the cost of one: all
    that wait for one another are taken.
    """
    if not family.of(job.model).judges_together:
        return MOST_COALESCED
    return max(job.services.settings.batch_min_requests, PACE.most(job.lease.model_id))


def _member(
    session: Session,
    model_id: int,
    job: Job,
    claims: Mapping[str, Sequence[Claimed]],
    taken: Collection[str],
) -> BatchMember | None:
    """Return a request with what it erases besides `taken`, or None if nothing is left."""
    request = session.get_one(ErasureRequest, job.request_id)
    scope = Scope.model_validate(request.scope)
    found = forget_set(session, model_id, scope, request.id, taken, claims)
    if not found:
        return None
    return BatchMember.of(job, request, ((r.record, r.salt, r.subject_id) for r in found))


def _companions(session: Session, head: Job, whole: set[int]) -> list[Job]:
    """Return the other unexecuted erasures that have records in the blocks to be dropped."""
    claimants = select(Record.claimed_by).where(
        col(Record.subject_id).in_(whole), col(Record.claimed_by).is_not(None)
    )
    query = (
        select(Job)
        .join(ErasureRequest, col(ErasureRequest.id) == col(Job.request_id))
        .where(
            col(Job.request_id).in_(claimants),
            Job.id != head.id,
            col(Job.done_at).is_(None),
            col(ErasureRequest.state).not_in(HELD),
        )
        .order_by(col(Job.seq))
    )
    return list(session.exec(query))


def _begin(tx: Transaction, job: Job, request: ErasureRequest) -> int:
    """Fence another job: only this worker may commit its execution. Returns its token."""
    job.lease_token += 1
    job.stage = "execute"  # it may have been parked
    if request.state != "executing":
        if request.state == "received":
            record_request_event(tx, request, "request.executing", {})
        request.state = "executing"
    return job.lease_token
