"""A named operator decides on a request whose ladder is spent.

Every rung was refuted, so what is stored may be damaged, and no program should guess. The
model is out of service until somebody has looked: then it is fitted anew, or the request is
given up and says so.
"""

from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.sequencer import Transaction
from app.schemas.requests import Decision, RequestView
from app.service.context import Services
from app.service.ladder import last_rung
from app.service.problems import ConflictError
from app.service.queue import PARKED
from app.service.releases import close_releases
from app.service.requests import close, find, view
from models import ErasureRequest, Job, Model

AWAITING = "needs-decision"


def decide(services: Services, request_id: str, wanted: Decision, operator: str) -> RequestView:
    """Carry out an operator's decision; `operator` is the name of the token it came with.

    Raises:
        NotFoundError: Nobody holds a request of that id.
        ConflictError: The request waits for no decision.
    """

    def effect(tx: Transaction) -> tuple[str, str] | None:
        session = tx.session
        request = find(session, request_id)
        job = session.exec(select(Job).where(Job.request_id == request.id)).one()
        if request.state != AWAITING or job.stage != PARKED:
            raise ConflictError("this request waits for no decision: look at its state")
        said = {"decision": wanted.decision, "by": operator, "why": wanted.why}
        record_request_event(tx, request, "request.decided", said)
        model = session.get_one(Model, request.model_id)
        if wanted.decision == "abandon":
            reason = request.reason
            _let_go(services, session, job)
            close_releases(services, tx, request.id)
            close(tx, request, job, "failed", f"given up by decision: {reason}")
            _hand_on(tx, model, reason)
            return None
        model.state, model.failure = "ready", None
        record_model_event(tx, model.ref, "model.released", {})
        request.state, request.reason = "escalated", None
        job.stage, job.attempt, job.lease_until = "execute", 0, None
        job.rung = max(job.rung, last_rung(model.config)) + 1
        session.flush()
        return job.id, job.stage

    nudge = services.committer.submit(effect)
    if nudge is not None:
        services.dispatcher.nudge(*nudge)
    return view(services, request_id)


def _hand_on(tx: Transaction, model: Model, reason: str | None) -> None:
    """Have the next request of the same update wait for a decision in place of the first.

    It was executed in the version that is out of service, and nobody else would wake it. The
    others follow it: what it is made anew in, they are judged by.
    """
    session = tx.session
    session.flush()
    job = session.exec(
        select(Job)
        .where(Job.model_id == model.id, Job.stage == "verify", col(Job.done_at).is_(None))
        .order_by(col(Job.seq))
    ).first()
    if job is None:
        return
    request = session.get_one(ErasureRequest, job.request_id)
    request.state = AWAITING
    request.reason = f"executed together with a request that was given up: {reason}"
    record_request_event(tx, request, "request.needs-decision", {"reason": request.reason})
    job.stage, job.attempt, job.lease_until = PARKED, 0, None
    session.flush()


def _let_go(services: Services, session: Session, job: Job) -> None:
    """Destroy what the job's later stages would have needed; what others share, stays."""
    if job.draft_id is not None:
        services.artifacts.shred(session, job.draft_id)
    others = select(Job.id).where(
        Job.before_id == job.before_id, Job.id != job.id, col(Job.done_at).is_(None)
    )
    if job.before_id is not None and session.exec(others).first() is None:
        services.artifacts.shred(session, job.before_id)
