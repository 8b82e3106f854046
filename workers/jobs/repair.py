"""Repair: the attempts after a verification that did not pass.

A policy may name other methods to try from the model before. Whatever they do, the retained
rows are still stored: the last attempt retrains the model from them. Each attempt shreds the
refuted version and is judged like the first. If the last attempt fails too, the stored data
are damaged, and the model is taken out of service for an operator to examine.
"""

from collections.abc import Sequence

from sqlmodel import Session, select

from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.reconcile.judgement import TOGETHER
from app.retained_pages import RetainedSet, leaves
from app.steps import reached
from lethe.certificates.statement import AttemptPart, spelled
from models import ErasureRequest, Job, Verification
from workers.cases.case import NextAttempt
from workers.families import base as family
from workers.jobs import held_out, publish
from workers.jobs.attempts import attempts_since, escalated
from workers.jobs.endings import give_up_within
from workers.jobs.publish import Refuted
from workers.leases import checkpoints
from workers.leases.lease import JobContext, advance, queued_behind
from workers.updates import draft
from workers.updates.draft import Draft
from workers.updates.update import UpdateResult, timed, with_seconds


def run(job: JobContext) -> None:
    """Make the version of the lease's attempt and pass it to the verifier.

    Requests executed together with this one and not yet certified move to the same attempt, and
    the new version is judged for them too: the version that they were executed in is destroyed.

    Raises:
        RefusedError: The rows cannot be fitted, or the log contradicts what is stored about the
            attempt before.
        OtherModelError: The row was changed meanwhile; no other effect.
        LeaseLostError: Another worker holds the job now.
    """
    services, lease, model = job.services, job.lease, job.model
    with services.reading() as session:
        since = {
            row.request_id: attempts_since(services, session, row, plan)
            for row, plan in _plans(job, session)
        }
        base = model.current_version
        retained = RetainedSet.of(leaves(session, lease.model_id))
    _, *skipped = since[lease.request_id]
    kind = family.of(model)
    result, seconds = timed(lambda: kind.refit(job))
    result = with_seconds(result, seconds)
    measured = held_out.measure(job, result.encoded.head)
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        session = tx.session
        publish.unchanged(job, tx, base)
        refuted = []
        for row, plan in _plans(job, session):
            # The other requests skip the methods that the refuted one skipped.
            more = [] if row.request_id == lease.request_id else skipped
            refuted.append(Refuted(row, plan, [*since[row.request_id], *more]))
        drafts = publish.replace_refuted(job, tx, result, retained, refuted, measured)
        if not kind.compares(result.claim):
            checkpoints.drop_before(services, session, lease.job_id)
        for one, stored in zip(refuted, drafts, strict=True):
            request = session.get_one(ErasureRequest, one.row.request_id)
            together = None if request.id == lease.request_id else skipped
            _record_attempt(tx, request, result, one.following, together)
            payload = publish.executed(result, stored.digest, one.following)
            record_request_event(tx, request, "request.executed", payload)
        reached("execute.written")
        session.flush()
        checkpoints.let_go(job, tx)
        advance(tx, lease, "verify", draft_id=drafts[0].id)

    services.ledger.transact(effect)


def _record_attempt(
    tx: Transaction,
    request: ErasureRequest,
    result: UpdateResult,
    attempt: int,
    skipped: Sequence[AttemptPart] | None,
) -> None:
    """Log what the escalation event did not say about a request, or could not say yet.

    attempt: the number of the request's attempt in the new version. skipped: by the request
    that it was executed together with; None for that request itself.
    """
    if skipped is not None:
        lines = list(map(spelled, skipped))
        # A method that fell back is named itself, not the retraining that replaced it.
        method = result.name if result.escalated is None else result.escalated.partition(":")[0]
        payload = escalated("NONE", TOGETHER, attempt, method, lines)
        record_request_event(tx, request, "request.escalated", payload)
    if result.escalated is not None:
        record_request_event(
            tx,
            request,
            "request.escalated",
            escalated("NONE", result.escalated, attempt, result.method),
        )


def _plans(leased: JobContext, session: Session) -> list[tuple[Job, Draft]]:
    """Return the leased job and those that wait to be verified after it, with their drafts.

    All were executed in the version that is now refuted.
    """
    job = session.exec(select(Job).where(Job.id == leased.lease.job_id)).one()
    jobs = [job, *queued_behind(session, job.id, "verify")]
    return [(one, draft.load(leased.services, session, one)) for one in jobs]


def escalate(
    job: JobContext,
    tx: Transaction,
    found: Verification,
    plan: Draft,
    following: NextAttempt | None,
) -> None:
    """Send a request that did not pass to the next attempt, or end it and quarantine its model.

    plan: the draft of the attempt that was judged.

    Raises LeaseLostError if another worker holds the job.
    """
    services, lease, session = job.services, job.lease, tx.session
    request = session.get_one(ErasureRequest, lease.request_id)
    failed = ", ".join(
        f"{check['number']} {check['name']}"
        for check in found.report["checks"]
        if not check["passed"]
    )
    if following is None:
        reason = family.of(job.model).why_ended(found.result, failed)
        give_up_within(job, tx, reason)
        return
    if not following.compared:
        checkpoints.drop_before(services, session, lease.job_id)
    request.state = "escalated"
    payload = escalated(
        found.result, failed, plan.attempt + 1, following.method, following.skipped
    )
    record_request_event(tx, request, "request.escalated", payload)
    session.flush()
    advance(tx, lease, "execute", step=following.step)
