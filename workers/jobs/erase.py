"""Erase: remove claimed records, publish the next version, destroy what held them."""

from app.ledger.sequencer import Transaction
from app.steps import reached
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs import (
    batch,
    checkpoints,
    publish,
    releasing,
    versions,
)
from workers.jobs.asking import AnswerError, dropped_subjects
from workers.jobs.chain import Chain
from workers.jobs.context import JobContext
from workers.jobs.lease import advance
from workers.jobs.members import Member
from workers.jobs.registered import OtherModelError
from workers.method_audits import numbers as audit_numbers


def run(job: JobContext) -> None:
    """Remove a request's claimed records from its model, and those of requests like it.

    If the method declines the removal of all together, the leased request goes alone: what
    is wrong with one of them is not the fault of the others.

    Raises:
        RefusedError: The method declined; nothing was changed.
        OtherModelError: The row was changed meanwhile; nothing was changed besides.
        LeaseLostError: Another worker holds the job now.
    """
    services, lease = job.services, job.lease
    members = batch.collect(services, lease)
    if not members:  # parked: a client must answer first
        return
    assert lease.request_id is not None
    with services.reading() as session:
        # What goes with a block that a person decided to remove goes with it or not at all.
        together = bool(dropped_subjects(session, lease.request_id))
    if len(members) > 1 and not together:
        try:
            _execute(job, members)
            return
        except OtherModelError:
            raise
        except RefusedError:
            members = members[:1]
    try:
        _execute(job, members)
    except AnswerError as error:
        release = error.release
        services.ledger.transact(lambda tx: releasing.ask_anew(services, tx, lease, release))


def _execute(job: JobContext, members: list[Member]) -> None:
    services, lease, model = job.services, job.lease, job.model
    with services.reading() as session:
        before = versions.current(session, model)
        assert before is not None
    update = family.of(model).forget(job, before, members)
    with services.reading() as session:
        leaving = {record for member in members for record in member.salts}
        audited = audit_numbers.of_records(session, model, leaving)
        retained = versions.commitments(session, lease.model_id)
        dropped = versions.commitments_of(session, lease.model_id, update.dropped)
    chain = Chain.of(members, retained, dropped=dropped)
    reached("execute.computed")
    going: list[tuple[str, str]] = []

    def effect(tx: Transaction) -> None:
        publish.current(job, tx, before.number)
        made = publish.publish(job, tx, before, members, update, chain)
        ids = [member.request_id for member in members]
        going.extend(releasing.settle(services, tx, ids, list(update.rest)))
        checkpoints.let_go(services, tx, lease)
        advance(tx, lease, "verify", draft_id=made.drafts[0], before_id=made.before_id)
        audit_numbers.destroy(tx.session, audited)

    services.ledger.transact(effect)
    for job_id, stage in going:
        services.dispatcher.nudge(job_id, stage)
