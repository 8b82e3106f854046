"""Repair: the rung after a verification that did not pass.

Whatever the method did, the retained rows are still there: the model is trained again from
them, the refuted version is shredded, and the verifier is asked again. If that does not pass
either, what is stored is damaged, and the model is taken out of service for a person to look.
"""

from dataclasses import replace

from sqlmodel import select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.sequencer import Transaction
from app.service.context import Services
from app.steps import reached
from models import ErasureRequest, Job, Model, Verification
from workers.methods import registry
from workers.tasks import draft, versions
from workers.tasks.blocks import decode_block
from workers.tasks.lease import Lease, LeaseLostError, advance, fail
from workers.tasks.versions import RetainedSet

METHOD = "ridge-exact"  # whichever method was asked for, its last rung is the plainest one


def run(services: Services, lease: Lease) -> None:
    """Refit the model from its retained rows and hand the new version to the verifier.

    Raises:
        RefusedError: The rows cannot be fitted.
        LeaseLostError: Another worker holds the job now.
    """
    method = registry.get(METHOD)
    with services.reading() as session:
        job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
        plan = draft.load(services, session, job)
        model = session.get_one(Model, lease.model_id)
        config = versions.ridge_config(model)
        base = model.current_version
        blocks = [
            decode_block(payload).rows
            for _, payload in services.features.load_many(session, lease.model_id)
        ]
        retained = RetainedSet.of(versions.commitments(session, lease.model_id))
    outcome = method.refit(config, blocks)
    encoded = versions.encode(outcome.state, config)
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        session = tx.session
        model = session.get_one(Model, lease.model_id)
        if model.current_version != base:
            raise LeaseLostError(lease.job_id)
        version = versions.publish(services, tx, model, lease, encoded, retained)
        shredded = versions.withdraw_earlier(services, tx, model, version)
        repaired = replace(
            plan,
            statistics_after=encoded.statistics,
            method=f"{METHOD}-refit",
            method_version=method.version,
            claim=outcome.claim,
            parameters={**versions.parameters(config), "escalated": "verification failed"},
            bounds={"head": repr(outcome.state.bound)},
            artifacts=[*plan.artifacts, *shredded],
        )
        job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
        assert job.draft_id is not None
        services.artifacts.shred(session, job.draft_id)
        draft_id = draft.store(services, session, repaired)
        reached("execute.written")
        request = session.get_one(ErasureRequest, lease.request_id)
        request.state = "verifying"
        record_request_event(
            tx,
            request,
            "request.executed",
            {"head": encoded.head_digest, "statistics": encoded.statistics},
        )
        session.flush()
        advance(tx, lease, "verify", draft_id=draft_id)

    services.ledger.transact(effect)


def climb(services: Services, tx: Transaction, lease: Lease, found: Verification) -> None:
    """Send a request that did not pass to the next rung, or end it and quarantine its model.

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
    if lease.rung == 0:
        request.state = "escalated"
        record_request_event(
            tx, request, "request.escalated", {"result": found.result, "checks": failed}
        )
        session.flush()
        advance(tx, lease, "execute", rung=1)
        return
    _give_up(services, tx, lease, f"verification {found.result} also after a refit: {failed}")


def give_up(services: Services, lease: Lease, reason: str) -> None:
    """End a request whose refit was refused, and quarantine its model.

    Raises:
        LeaseLostError: Another worker holds the job now.
    """
    services.ledger.transact(lambda tx: _give_up(services, tx, lease, reason))


def _give_up(services: Services, tx: Transaction, lease: Lease, reason: str) -> None:
    job = tx.session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if job.lease_token != lease.token or job.stage != lease.stage:
        raise LeaseLostError(lease.job_id)
    model = tx.session.get_one(Model, lease.model_id)
    model.state, model.failure = "quarantined", reason
    record_model_event(tx, model.ref, "model.quarantined", {})
    fail(services, tx, job, reason)
