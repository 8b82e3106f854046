"""The end of masked rounds: expired steps, parked erasures, and sealed transcripts."""

from datetime import datetime

from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.transaction import Transaction
from app.reconcile.model_events import ROUND_FAILED, masked_inputs
from app.rounds.steps import advance_round
from app.schemas.rounds import STEPS
from app.service.context import Services
from app.service.queue import PARKED
from lethe.catalogue import data_of
from models import ErasureRequest, Job, Model, Round
from models.database.types import clock
from workers.leases.lease import JobContext, advance
from workers.leases.stalled import ESCALATION_MARGIN

AWAITING = "awaiting-round"
# No verifier will read its transcript again.
CLOSED = ("certified", "refused", "withdrawn", "failed")


def park(job: JobContext) -> None:
    """Park an erasure until the round that releases its records.

    Raises LeaseLostError if another worker holds the job.
    """

    def effect(tx: Transaction) -> None:
        request = tx.session.get_one(ErasureRequest, job.lease.request_id)
        request.state = AWAITING
        record_request_event(tx, request, "request.awaiting-round", {})
        tx.session.flush()
        advance(tx, job.lease, PARKED)

    job.services.ledger.transact(effect)


def settle(services: Services, tx: Transaction, request_id: str) -> None:
    """Shred a round's transcript when the last of its requests has ended."""
    query = select(Round).where(col(Round.transcript_id).is_not(None))
    for row in tx.session.exec(query).all():
        if request_id in row.requests:
            _settle(services, tx, row)


def advance_due(services: Services) -> None:
    """End steps that timed out, and shred transcripts that are no longer needed."""
    with services.reading() as session:
        late = _late(session, clock(session))
        kept = session.exec(select(Round).where(col(Round.transcript_id).is_not(None))).all()
        settled = [row.id for row in kept if _is_settled(session, row)]
        silent = _forgotten(session, clock(session))
    if silent:
        services.ledger.transact(_escalate)
    for round_id in late:
        _advance(services, round_id)
    for ref in _lost(services):
        _end_lost(services, ref)
    for round_id in settled:
        _settle_one(services, round_id)


def _forgotten(session: Session, now: datetime) -> list[str]:
    """Return the requests that no round has completed and that are due soon."""
    query = select(ErasureRequest.id).where(
        ErasureRequest.state == AWAITING,
        col(ErasureRequest.due_at) <= now + ESCALATION_MARGIN,
    )
    return list(session.exec(query))


def _escalate(tx: Transaction) -> None:
    """Escalate to the operator, in the log. The requests keep waiting for a release."""
    for request_id in _forgotten(tx.session, tx.now):
        request = tx.session.get_one(ErasureRequest, request_id)
        request.state = "escalated"
        record_request_event(tx, request, "request.escalated", {"reason": "no-round"})
    tx.session.flush()


def _late(session: Session, now: datetime) -> list[str]:
    due = select(Round.id).where(col(Round.state).in_(STEPS), col(Round.step_until) <= now)
    return list(session.exec(due))


def _advance(services: Services, round_id: str) -> None:
    def effect(tx: Transaction) -> str | None:
        return advance_round(services, tx, tx.session.get_one(Round, round_id))

    job_id = services.ledger.transact(effect)
    if job_id is not None:
        services.dispatcher.nudge(job_id)


def _lost(services: Services) -> list[str]:
    """Return the models that have masked inputs by the log, and no round that may learn them.

    Such as after a restore to before the round. No person would be looked up in them any more.
    """
    with services.reading() as session:
        models = session.exec(select(Model)).all()
        masked = [one for one in models if data_of(one.config).in_rounds]
        idle = [one.ref for one in masked if not _has_round(session, one.ref)]
    return [ref for ref in idle if masked_inputs(services.ledger, ref)]


def _has_round(session: Session, ref: str) -> bool:
    query = select(Round.id).join(Model, col(Model.id) == col(Round.model_id))
    unended = query.where(Model.ref == ref, col(Round.state).in_((*STEPS, "summing")))
    return session.exec(unended).first() is not None


def _end_lost(services: Services, ref: str) -> None:
    """Log that a round failed. Nothing of it can be learned then, whoever hid it."""

    def effect(tx: Transaction) -> None:
        # Another sweep may have ended it meanwhile.
        if not _has_round(tx.session, ref) and masked_inputs(services.ledger, ref):
            record_model_event(tx, ref, ROUND_FAILED, {})

    services.ledger.transact(effect)


def _settle_one(services: Services, round_id: str) -> None:
    def effect(tx: Transaction) -> None:
        _settle(services, tx, tx.session.get_one(Round, round_id))

    services.ledger.transact(effect, checkpoint=False)


def _settle(services: Services, tx: Transaction, row: Round) -> None:
    if row.transcript_id is not None and _is_settled(tx.session, row):
        services.artifacts.shred(tx.session, row.transcript_id, "round")
        row.transcript_id = None
        tx.session.flush()


def _is_settled(session: Session, row: Round) -> bool:
    """Return whether every request that the round executed has ended.

    Requests whose clients dropped out of it are still parked, without a draft of this round.
    """
    query = select(Job).where(col(Job.request_id).in_(list(row.requests)), Job.stage != PARKED)
    requests = [session.get_one(ErasureRequest, job.request_id) for job in session.exec(query)]
    return all(request.state in CLOSED for request in requests)
