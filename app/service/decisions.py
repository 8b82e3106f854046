"""A named operator decides on a request whose attempts are exhausted or whose job is stalled.

If every attempt was refuted, stored data may be damaged, and no program should guess. The model
is out of service until an operator decides: it is then fitted again, or the request is
abandoned with a reason. If the model's row was changed before anything was executed, there is
nothing to fit again: the first attempt is repeated. If a machine or a silo is missing, the job
is not parked: it is retried with or without a decision.
"""

from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.transaction import Transaction
from app.problems import ConflictError
from app.schemas.requests import Decision, RequestView
from app.service.context import Services
from app.service.methods import last_step
from app.service.queue import PARKED
from app.service.releases import close_releases
from app.service.requests import close, find, require_own_ref, view
from lethe.catalogue import COMPLAINT, LAPSES, data_of
from models import ErasureRequest, Job, Model

AWAITING = "needs-decision"


def decide(services: Services, request_id: str, wanted: Decision, operator: str) -> RequestView:
    """Carry out an operator's decision; `operator` is the name of the token it came with.

    Raises:
        NotFoundError: There is no request of that id.
        ConflictError: The request waits for no decision.
        PeopleChangedError: The database has it under the reference of another request.
    """

    def effect(tx: Transaction) -> tuple[str, str] | None:
        session = tx.session
        request = find(session, request_id)
        job = session.exec(select(Job).where(Job.request_id == request.id)).one()
        if request.state != AWAITING or job.done_at is not None:
            raise ConflictError("this request is not waiting for a decision: see its state")
        require_own_ref(services, request)
        decision = {"decision": wanted.decision, "by": operator, "why": wanted.why}
        record_request_event(tx, request, "request.decided", decision)
        model = session.get_one(Model, request.model_id)
        if wanted.decision == "abandon":
            reason = request.reason
            unjudged = _set_aside(services, tx, request, job)
            close(services, tx, request, job, "failed", f"abandoned by decision: {reason}")
            if unjudged:
                _pass_on(tx, model, reason)
            return None
        if job.stage != PARKED:
            return _try_again(services, session, model, request, job)
        _return_to_service(tx, model)
        request.state, request.reason = "escalated", None
        if _is_untouched(job):
            request.state = "executing"
        else:
            job.step = max(job.step, last_step(model.config)) + 1
        job.stage, job.tries, job.deaths, job.lease_until = "execute", 0, 0, None
        session.flush()
        return job.id, job.stage

    nudge = services.committer.submit(effect)
    if nudge is not None:
        services.dispatcher.nudge(*nudge)
    return view(services, request_id)


def lapse(services: Services, tx: Transaction, request: ErasureRequest) -> None:
    """Refuse a request that waits for a person long after its deadline; it may be sent again.

    Nothing is executed: what was released for it and what its job would have continued from is
    destroyed, its claims are released, and the requester is told. Raises as `close`.
    """
    job = tx.session.exec(select(Job).where(Job.request_id == request.id)).one()
    law = request.regulation
    (reason,), more = LAPSES[law].values(), {"notice": COMPLAINT[law]}
    if job.done_at is not None:  # it had failed: only its answer was missing
        request.state, request.reason = "refused", reason
        record_request_event(tx, request, "request.refused", {"reason": reason, **more})
    elif request.state == AWAITING:
        waited = request.reason
        unjudged = _set_aside(services, tx, request, job)
        close(services, tx, request, job, "refused", reason, **more)
        if unjudged:
            _pass_on(tx, tx.session.get_one(Model, request.model_id), waited)
    else:
        _destroy_inputs(services, tx.session, job)
        close_releases(services, tx, request.id)
        close(services, tx, request, job, "refused", reason, **more)


def _set_aside(services: Services, tx: Transaction, request: ErasureRequest, job: Job) -> bool:
    """Prepare the end of a request that waits for a decision.

    Returns whether it was executed and nobody judged it: its model is then quarantined, and
    `_pass_on` follows the end.
    """
    model = tx.session.get_one(Model, request.model_id)
    reason, untouched = request.reason, _is_untouched(job)
    if untouched and (model.state, model.failure) == ("quarantined", reason):
        # Otherwise the requests behind it could not be decided.
        _return_to_service(tx, model)
    unjudged = not untouched and job.stage != "certify"
    unjudged = unjudged and (job.stage != "execute" or job.step > 1)
    if unjudged and model.state != "quarantined":
        model.state, model.failure = "quarantined", reason
        record_model_event(tx, model.ref, "model.quarantined", {})
    _destroy_inputs(services, tx.session, job)
    close_releases(services, tx, request.id)
    return unjudged


def _is_untouched(job: Job) -> bool:
    """Return whether a request waits for a decision and was never executed."""
    return job.stage == PARKED and job.step == 1 and job.draft_id is None


def _return_to_service(tx: Transaction, model: Model) -> None:
    model.state, model.failure = "ready", None
    record_model_event(tx, model.ref, "model.released", {})


def _try_again(
    services: Services, session: Session, model: Model, request: ErasureRequest, job: Job
) -> tuple[str, str]:
    """Retry a waiting job at once; retrain or refit if no machine can verify it.

    The job may not be at the head of its queue. The machine that retrains can also judge.
    Raises ConflictError if the model is out of service: it runs no job.
    """
    if model.state == "quarantined":
        raise ConflictError(
            "its model is quarantined and runs no job: decide on the request whose result "
            "was refused, or abandon this one"
        )
    request.reason = None
    if job.stage == "verify" and data_of(model.config).rebuildable:
        _forget_stage(services, session, job)
        request.state, job.stage = "escalated", "execute"
        job.step = max(job.step, last_step(model.config)) + 1
    elif job.stage == "execute" and job.step == 1:
        request.state = "executing" if job.lease_token else "received"
    else:
        request.state = "escalated" if job.stage == "execute" else "verifying"
    job.tries, job.deaths, job.lease_until = 0, 0, None
    session.flush()
    return job.id, job.stage


def _pass_on(tx: Transaction, model: Model, reason: str | None) -> None:
    """Make the next request of the same update wait for a decision in place of the first.

    It is part of the version that is out of service, and nothing else would resume it. The
    others follow: they are judged with the version that its retraining produces.
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
    request.reason = f"executed together with a request that was abandoned: {reason}"
    record_request_event(tx, request, "request.needs-decision", {"reason": request.reason})
    job.stage, job.tries, job.deaths, job.lease_until = PARKED, 0, 0, None
    session.flush()


def _destroy_inputs(services: Services, session: Session, job: Job) -> None:
    """Destroy the inputs of the job's later stages, except those that other jobs share."""
    _forget_stage(services, session, job)
    if job.draft_id is not None:
        services.artifacts.shred(session, job.draft_id, "draft")
    others = select(Job.id).where(
        Job.before_id == job.before_id, Job.id != job.id, col(Job.done_at).is_(None)
    )
    if job.before_id is not None and session.exec(others).first() is None:
        services.artifacts.shred(session, job.before_id, "before")


def _forget_stage(services: Services, session: Session, job: Job) -> None:
    """Destroy the checkpoint that a stage would have resumed from."""
    if job.checkpoint_id is not None:
        services.artifacts.shred(session, job.checkpoint_id, "checkpoint")
        job.checkpoint_id = None
