"""Repair: the attempts after a verification that did not pass.

A network's policy may name other methods to try from the model before. Whatever they do, the
retained rows are still there: the last attempt makes the model anew from them. Each attempt
shreds the refuted version and is judged like the first. If the last does not pass either, what
is stored is damaged, and the model is taken out of service for a person to look.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.sequencer import Transaction
from app.reconcile.escalation import TOGETHER
from app.service.context import Services
from app.service.decisions import AWAITING
from app.service.ladder import last_attempt
from app.service.queue import PARKED
from app.steps import reached
from lethe.certificates.escalation import AttemptPart, spelled
from models import ErasureRequest, Job, Model, Verification
from workers.families import base as family
from workers.jobs import (
    before,
    checkpoints,
    draft,
    publish,
    versions,
)
from workers.jobs.context import JobContext
from workers.jobs.draft import Draft
from workers.jobs.ladder import NextAttempt, escalated, escalation_parameters, executed
from workers.jobs.lease import Lease, LeaseLostError, advance, fail
from workers.jobs.told import attempts_since
from workers.jobs.update import UpdateResult
from workers.jobs.versions import RetainedSet

KEPT = ("batch", "data", "dropped")  # what a refit does not change


def run(job: JobContext) -> None:
    """Make the version of the lease's attempt and hand it to the verifier.

    Requests that were executed together with this one and are not yet certified are judged
    by the new version too, and are on its attempt: the one that they were executed in is
    destroyed with it.

    Raises:
        RefusedError: The rows cannot be fitted, or the log contradicts what is stored of the
            attempt before.
        OtherModelError: The row was changed meanwhile; nothing was changed besides.
        LeaseLostError: Another worker holds the job now.
    """
    services, lease, model = job.services, job.lease, job.model
    with services.reading() as session:
        told = {
            row.request_id: attempts_since(services, session, row, plan)
            for row, plan in _plans(services, session, lease)
        }
        base = model.current_version
        retained = RetainedSet.of(versions.commitments(session, lease.model_id))
    kind = family.of(model)
    made = kind.refit(job)
    encoded = made.encoded
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        session = tx.session
        model = publish.current(job, tx, base)
        version = versions.publish(services, tx, model, lease, encoded, retained)
        shredded = versions.withdraw_earlier(services, tx, model, version)
        if not kind.compares(made.claim):
            before.drop(services, session, lease.job_id)
        drafts = []
        _, *skipped = told[lease.request_id]
        for row, plan in _plans(services, session, lease):
            first = row.request_id == lease.request_id
            # Those who wait left out the attempts that the refuted one left out.
            since = told[row.request_id] if first else (*told[row.request_id], *skipped)
            repaired = replace(
                plan,
                number=version.number,
                statistics_after=encoded.statistics,
                method=made.method,
                method_version=made.method_version,
                claim=made.claim,
                parameters={
                    **made.parameters,
                    **{name: plan.parameters[name] for name in KEPT if name in plan.parameters},
                    **escalation_parameters(plan, since, made.escalated),
                },
                bounds=dict(made.bounds),
                artifacts=[*plan.artifacts, *shredded],
            )
            assert row.draft_id is not None
            services.artifacts.shred(session, row.draft_id)
            stored = draft.store(services, session, repaired)
            row.draft_id, row.attempt = stored.id, lease.attempt
            drafts.append(stored.id)
            request = session.get_one(ErasureRequest, row.request_id)
            request.state = "verifying"
            _tell(tx, request, made, lease.attempt, None if first else skipped)
            record_request_event(tx, request, "request.executed", executed(made, stored.digest))
        reached("execute.written")
        session.flush()
        checkpoints.let_go(services, tx, lease)
        advance(tx, lease, "verify", draft_id=drafts[0])

    services.ledger.transact(effect)


def _tell(
    tx: Transaction,
    request: ErasureRequest,
    made: UpdateResult,
    attempt: int,
    skipped: Sequence[AttemptPart] | None,
) -> None:
    """Log what the event of the escalation did not say of a request, or could not say yet.

    skipped: by the request that it was executed together with; None if that is itself.
    """
    if skipped is not None:
        lines = list(map(spelled, skipped))
        said = escalated("NONE", TOGETHER, attempt, _said(made), lines)
        record_request_event(tx, request, "request.escalated", said)
    if made.escalated is not None:
        record_request_event(
            tx,
            request,
            "request.escalated",
            escalated("NONE", made.escalated, attempt, made.method),
        )


def _said(made: UpdateResult) -> str:
    if made.escalated is not None:
        return made.escalated.partition(":")[0]
    return made.name


def _plans(services: Services, session: Session, lease: Lease) -> list[tuple[Job, Draft]]:
    """Return the leased job and those that wait to be verified after it, with their drafts.

    Until the leased one is done nothing else of the model is executed, so whatever was
    executed and is not yet certified was executed in the version that is refuted now.
    """
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    waiting = (
        select(Job)
        .where(
            Job.model_id == lease.model_id,
            Job.id != job.id,
            col(Job.stage) == "verify",
            col(Job.done_at).is_(None),
        )
        .order_by(col(Job.seq))
    )
    jobs = [job, *session.exec(waiting)]
    return [(one, draft.load(services, session, one)) for one in jobs]


def escalate(
    services: Services,
    tx: Transaction,
    lease: Lease,
    found: Verification,
    following: NextAttempt | None,
) -> None:
    """Send a request that did not pass to the next attempt, or end it and quarantine its model.

    Raises:
        LeaseLostError: Another worker holds the job now.
    """
    session = tx.session
    request = session.get_one(ErasureRequest, lease.request_id)
    failed = ", ".join(
        f"{check['number']} {check['name']}"
        for check in found.report["checks"]
        if not check["passed"]
    )
    if following is None:
        kind = family.of(session.get_one(Model, lease.model_id))
        _give_up(services, tx, lease, kind.why_ended(found.result, failed))
        return
    if not following.compared:
        before.drop(services, session, lease.job_id)
    request.state = "escalated"
    told = escalated(
        found.result, failed, following.attempt, following.method, following.skipped
    )
    record_request_event(tx, request, "request.escalated", told)
    session.flush()
    advance(tx, lease, "execute", attempt=following.attempt)


def give_up(services: Services, lease: Lease, reason: str) -> None:
    """Have a request wait for a decision, and quarantine its model.

    Its refit was refused, or the log contradicts what would be certified.

    Raises:
        LeaseLostError: Another worker holds the job now.
    """
    services.ledger.transact(lambda tx: _give_up(services, tx, lease, reason))


def hold(services: Services, lease: Lease, reason: str) -> None:
    """Quarantine a model whose row was changed, and have the request wait for a decision.

    Its job stays on its attempt: where nothing was executed, a `retry` begins with what was
    asked for. Nothing is read of the configuration, which is what was changed: as "masked" it
    would have the request fail.

    Raises:
        LeaseLostError: Another worker holds the job now.
    """

    def effect(tx: Transaction) -> None:
        _quarantine(tx, lease, reason)
        _await_decision(tx, lease, reason, lease.attempt)

    services.ledger.transact(effect)


def _give_up(services: Services, tx: Transaction, lease: Lease, reason: str) -> None:
    job, model = _quarantine(tx, lease, reason)
    if not family.of(model).decidable:
        fail(services, tx, job, reason)
        return
    # Whatever attempt it ended on: if an operator has it tried again, it is made anew.
    _await_decision(tx, lease, reason, max(lease.attempt, last_attempt(model.config)))


def _quarantine(tx: Transaction, lease: Lease, reason: str) -> tuple[Job, Model]:
    job = tx.session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if job.lease_token != lease.token or job.stage != lease.stage:
        raise LeaseLostError(lease.job_id)
    model = tx.session.get_one(Model, lease.model_id)
    model.state, model.failure = "quarantined", reason
    record_model_event(tx, model.ref, "model.quarantined", {})
    return job, model


def _await_decision(tx: Transaction, lease: Lease, reason: str, attempt: int) -> None:
    request = tx.session.get_one(ErasureRequest, lease.request_id)
    request.state, request.reason = AWAITING, reason
    record_request_event(tx, request, "request.needs-decision", {"reason": reason})
    advance(tx, lease, PARKED, attempt=attempt)
