"""The unsuccessful ends of a job: refused, failed, or waiting for an operator's decision."""

from collections.abc import Sequence

from sqlmodel import select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.transaction import Transaction
from app.service import review
from app.service.context import Services
from app.service.decisions import AWAITING
from app.service.methods import last_step
from app.service.queue import MEND, PARKED
from app.service.releases import close_releases
from app.service.requests import close
from models import Contribution, ErasureRequest, Job, Model
from workers.families import base as family
from workers.leases.checkpoints import CHECKPOINT, release_before
from workers.leases.lease import JobContext, Lease, advance, held_job
from workers.updates.draft import DRAFT


def refuse(leased: JobContext, reason: str) -> None:
    """End the leased job as refused by its method; the model is unchanged.

    Raises LeaseLostError if another worker holds the job.
    """
    services = leased.services
    services.ledger.transact(
        lambda tx: fail(services, tx, held_job(tx, leased.lease), reason, state="refused")
    )


def fail(
    services: Services, tx: Transaction, job: Job, reason: str, state: str = "failed"
) -> None:
    """End a job without success and shred what it would need to continue.

    The reason is shown to the requester.
    """
    if job.draft_id is not None:
        services.artifacts.shred(tx.session, job.draft_id, DRAFT)
    if job.checkpoint_id is not None:
        services.artifacts.shred(tx.session, job.checkpoint_id, CHECKPOINT)
        job.checkpoint_id = None
    release_before(services, tx, job)
    if job.request_id is not None:
        close_releases(services, tx, job.request_id)
        request = tx.session.get_one(ErasureRequest, job.request_id)
        close(services, tx, request, job, state, reason)
        return
    model = tx.session.get_one(Model, job.model_id)
    kind = family.of(model)
    if (own := kind.own_jobs.get(job.kind)) is not None:
        own.fail(services, tx, job, reason)
        return
    job.stage, job.done_at, job.lease_until = "done", tx.now, None
    if job.kind == MEND:
        model.failure = f"not mended: {reason}"  # it stays in quarantine
        return
    contribution = tx.session.get_one(Contribution, job.contribution_id)
    contribution.state, contribution.failure = "failed", reason
    services.artifacts.shred(tx.session, contribution.upload_id, "upload")
    if model.current_version is None and kind.registered_with_rows(model):
        model.state, model.failure = "failed", reason
    record_model_event(tx, model.ref, "contribution.failed", {})


def give_up(leased: JobContext, reason: str) -> None:
    """Make a request wait for a decision, and quarantine its model.

    Its refit was refused, or the log contradicts what would be certified. Raises LeaseLostError
    if another worker holds the job.
    """
    leased.services.ledger.transact(lambda tx: give_up_within(leased, tx, reason))


def hold(leased: JobContext, reason: str) -> None:
    """Quarantine a model whose row was changed, and make the request wait for a decision.

    Its job stays on its step: where nothing was executed, a `retry` begins with the original
    request. The configuration is not read, since it may be what was changed: a forged one could
    make the request fail.

    Raises LeaseLostError if another worker holds the job.
    """

    def effect(tx: Transaction) -> None:
        _quarantine_model(tx, leased.lease, reason)
        _await_decision(tx, leased.lease, reason, leased.lease.step)

    leased.services.ledger.transact(effect)


def hold_back(leased: JobContext, requests: Sequence[str]) -> None:
    """Return requests to review that tables showed as approved, and free the leased job.

    Raises LeaseLostError if another worker holds it.
    """

    def effect(tx: Transaction) -> None:
        job = held_job(tx, leased.lease)
        job.lease_until = None
        for request_id in requests:
            request = tx.session.get_one(ErasureRequest, request_id)
            own = tx.session.exec(select(Job).where(Job.request_id == request_id)).one()
            review.hold(tx, request, own)
        tx.session.flush()

    leased.services.ledger.transact(effect)


def give_up_within(leased: JobContext, tx: Transaction, reason: str) -> None:
    """Do what `give_up` does; a request that no operator can decide on fails at once."""
    services, lease = leased.services, leased.lease
    job, model = _quarantine_model(tx, lease, reason)
    if not family.of(model).decidable:
        fail(services, tx, job, reason)
        return
    # Whatever its step: if an operator has it retried, the model is retrained from its rows.
    _await_decision(tx, lease, reason, max(lease.step, last_step(model.config)))


def _quarantine_model(tx: Transaction, lease: Lease, reason: str) -> tuple[Job, Model]:
    job = held_job(tx, lease)
    model = tx.session.get_one(Model, lease.model_id)
    model.state, model.failure = "quarantined", reason
    record_model_event(tx, model.ref, "model.quarantined", {})
    return job, model


def _await_decision(tx: Transaction, lease: Lease, reason: str, step: int) -> None:
    request = tx.session.get_one(ErasureRequest, lease.request_id)
    request.state, request.reason = AWAITING, reason
    record_request_event(tx, request, "request.needs-decision", {"reason": reason})
    advance(tx, lease, PARKED, step=step)
