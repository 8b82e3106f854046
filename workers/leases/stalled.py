"""Stalled jobs are escalated to an operator before their deadline.

They are retried all the same. If the machine, the silo or the disk comes back before a
decision, the request resumes at its stage, and nothing is lost.
"""

from datetime import datetime, timedelta

from sqlmodel import Session, col, or_, select

from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.service.decisions import AWAITING
from models import ErasureRequest, Job

# An operator learns of a silent client or a stalled job while there is still time to decide.
ESCALATION_MARGIN = timedelta(days=10)


def escalate(tx: Transaction, stuck: Job, why: str, *, at_once: bool = False) -> int:
    """Log, once per request, that a stuck job's request and those behind it need a decision.

    Those behind it are all jobs not begun: they can only run after it ends. Each is escalated
    once it is soon due; with at_once the stuck one is escalated now. why: names no person and
    no row. Returns how many were escalated.
    """
    due = _due(tx.session, stuck, tx.now, at_once=at_once)
    for job, request in due:
        own = job.id == stuck.id
        reason = why if own else f"waits for an earlier job of its model: {why}"
        request.state, request.reason = AWAITING, reason
        record_request_event(tx, request, "request.needs-decision", {"reason": reason})
    return len(due)


def is_due(session: Session, stuck: Job, now: datetime) -> bool:
    """Return whether a stuck job or one behind it is to be escalated."""
    return bool(_due(session, stuck, now, at_once=False))


def _due(
    session: Session, stuck: Job, now: datetime, *, at_once: bool
) -> list[tuple[Job, ErasureRequest]]:
    soon = col(ErasureRequest.due_at) <= now + ESCALATION_MARGIN
    query = (
        select(Job, ErasureRequest)
        .join(ErasureRequest, col(ErasureRequest.id) == col(Job.request_id))
        .where(
            Job.model_id == stuck.model_id,
            col(Job.done_at).is_(None),
            or_(Job.id == stuck.id, (col(Job.stage) == "execute") & (col(Job.step) == 1)),
            ErasureRequest.state != AWAITING,
            or_(soon, Job.id == stuck.id) if at_once else soon,
        )
        .order_by(col(Job.seq))
    )
    return list(session.exec(query))
