"""Execute: learn a contribution, remove the records of erasure requests, or mend a model.

Everything is computed first and committed in one transaction: the new version, the retained
set, the destroyed keys and the log entries take effect together or not at all. The computation
uses only the model row that was compared with the log, never a second read of it.
"""

from dataclasses import replace

from sqlmodel import Session

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.reconcile.inputs import versions_of, vouched_version
from app.reconcile.judgement import is_executed
from app.reconcile.model_events import request_events
from app.retained_pages import RetainedSet, leaves
from app.service.context import Services
from app.service.queue import MEND
from app.steps import reached
from app.vault.audit_numbers import destroy_numbers
from lethe.log.entries import Leaf
from models import ErasureRequest
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs import batch, endings, held_out, joint, learn, publish, releases, repair
from workers.jobs.leased import leased, pass_on
from workers.jobs.releases import dropped_subjects
from workers.leases import checkpoints
from workers.leases.checkpoints import clean
from workers.leases.lease import PACE, JobContext, Turn, advance, load_job
from workers.lineage import versions
from workers.lineage.chain import BatchMember, Chain, open_tree
from workers.lineage.logged import OtherRequestError, as_registered
from workers.lineage.versions import OtherModelError
from workers.method_audits import numbers as audit_numbers
from workers.updates.update import AnswerError, timed, with_seconds

EXECUTED = "the log has this request as executed already, the database as not begun"
LOST = (
    "the stored rows are not those of the last version in the log: restore them from a backup "
    "and mend the model again, or register the rows that are left as a new model"
)

UNVOUCHED = (
    "the last version in the log is of an erasure that has no certificate, so nothing says "
    "which rows are the right ones: register them as a new model"
)


def run(services: Services, job_id: str, turn: Turn | None = None) -> None:
    """Execute a job if it is its turn, and nudge what follows."""
    with leased(services, job_id, "execute", turn) as lease:
        if lease is None:
            return
        executed = False
        try:
            with services.reading() as session:
                job = load_job(services, session, lease)
                mends = lease.kind == MEND
                # The same object as the job's.
                as_registered(services.ledger, session, lease.model_id, mends=mends)
                if lease.kind == "erase" and lease.step == 1:
                    executed = _is_executed(job, session)
            if executed:
                # Its rows are destroyed and its version may be refuted: do not run the job
                # again.
                endings.give_up(job, EXECUTED)
            elif lease.kind == "erase" and lease.step > 1:
                repair.run(job)
            else:
                _begin(job)
        except publish.UnapprovedError as refusal:
            endings.hold_back(job, refusal.requests)
        except RefusedError as refusal:
            changed = isinstance(refusal, OtherModelError | OtherRequestError)
            if lease.kind == "erase" and changed:
                endings.hold(job, str(refusal))
            elif lease.kind == "erase" and lease.step > 1:
                endings.give_up(job, str(refusal))
            else:
                endings.refuse(job, str(refusal))
        reached("execute.applied")
        clean(services)
    # After the lease: the nudge's receiver must find the job free.
    if lease is not None:
        pass_on(services, lease)


def _begin(job: JobContext) -> None:
    """Execute a job on its first attempt, or let it wait."""
    kind = family.of(job.model)
    own = kind.own_jobs.get(job.lease.kind)
    if own is not None:
        joint.run(job, own)
    elif job.lease.kind == MEND:
        mend(job)
    elif job.lease.kind != "erase":
        learn.run(job)
    elif not kind.park(job):
        erase(job)


def _is_executed(job: JobContext, session: Session) -> bool:
    ref = session.get_one(ErasureRequest, job.lease.request_id).ref
    return is_executed(request_events(job.services.ledger, ref))


def erase(job: JobContext) -> None:
    """Remove a request's claimed records from its model, together with other waiting requests.

    If the method declines the removal of all of them, the leased request goes alone: a fault of
    one request must not fail the others.

    Raises:
        RefusedError: The method declined; nothing was changed.
        OtherModelError: The model's row was changed meanwhile; no other effect.
        OtherRequestError: The request's row was changed meanwhile; no other effect.
        LeaseLostError: Another worker holds the job now.
    """
    services, lease = job.services, job.lease
    members = batch.collect(job)
    if not members:  # parked: a client must answer first
        return
    if len(members) > 1 and not _goes_together(job):
        try:
            _execute(job, members)
            PACE.note(lease, len(members))
            return
        except (OtherModelError, publish.UnapprovedError):
            raise
        except RefusedError:
            members = members[:1]
    try:
        _execute(job, members)
    except AnswerError as error:
        release = error.release
        services.ledger.transact(lambda tx: releases.ask_anew(job, tx, release))


def _goes_together(job: JobContext) -> bool:
    """Return whether an operator dropped a block: its requests must be executed together."""
    assert job.lease.request_id is not None
    with job.services.reading() as session:
        return bool(dropped_subjects(session, job.lease.request_id))


def _execute(job: JobContext, members: list[BatchMember]) -> None:
    services, lease, model = job.services, job.lease, job.model
    with services.reading() as session:
        before = versions.current(session, model)
        assert before is not None
    kind = family.of(model)
    update, seconds = timed(lambda: kind.forget(job, before, members))
    update = replace(update, result=with_seconds(update.result, seconds))
    with services.reading() as session:
        leaving = {record for member in members for record in member.salts}
        audits = audit_numbers.of_records(session, model, leaving) if kind.audited else {}
        dropped = versions.commitments_of(session, lease.model_id, update.dropped)
        changes = len(leaving) + len(dropped)
        tree = open_tree(services.ledger, session, model, before, changes)
        chain = Chain.of(members, tree, dropped=dropped)
    measured = held_out.measure(job, update.result.encoded.head, members)
    reached("execute.computed")
    nudges: list[tuple[str, str]] = []

    def effect(tx: Transaction) -> None:
        publish.unchanged(job, tx, before.number)
        published = publish.publish(job, tx, before, members, update, chain, measured=measured)
        ids = [member.request_id for member in members]
        nudges.extend(releases.settle(services, tx, ids, list(update.rest)))
        checkpoints.let_go(job, tx)
        advance(
            tx, lease, "verify", draft_id=published.drafts[0], before_id=published.before_id
        )
        if kind.audited:
            destroy_numbers(tx.session, lease.model_id, audits)

    services.ledger.transact(effect)
    for job_id, stage in nudges:
        services.dispatcher.nudge(job_id, stage)


def mend(job: JobContext) -> None:
    """Refit a quarantined model from its rows and return it to service.

    The result is not judged, just as a contribution's version is not. So it is made only from
    the rows of a last version that a certificate or a contribution vouches for, by two logged
    digests: of the retained set, and of the version's inputs. Any change to a row or a record
    since then changes one of the digests. A refuted version vouches for nothing: its digests
    may cover rows that should have been erased.

    A restored database may lack versions that the log has: the next number comes after those.

    Raises:
        RefusedError: Nothing vouches for the log's last version, or the stored rows are not its
            rows, or cannot be fitted.
        OtherModelError: The model's row is not as it was registered.
        LeaseLostError: Another worker holds the job now.
    """
    services, lease, model = job.services, job.lease, job.model
    last = vouched_version(services.ledger, model.ref)
    if last is None:
        raise RefusedError(UNVOUCHED)
    with services.reading() as session:
        base = model.current_version
        retained = RetainedSet.of(leaves(session, lease.model_id))
    _require_same("retained", retained.root.hex(), last)
    result = family.of(model).refit(job)
    _require_same("statistics", result.encoded.statistics, last)
    measured = held_out.measure(job, result.encoded.head)
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        stored = publish.unchanged(job, tx, base)
        again = RetainedSet.of(leaves(tx.session, lease.model_id))
        _require_same("retained", again.root.hex(), last)
        stored.current_version = len(versions_of(services.ledger, stored))
        publish.replace_refuted(job, tx, result, retained, [], measured)
        stored.state, stored.failure = "ready", None
        record_model_event(tx, stored.ref, "model.released", {})
        reached("execute.written")
        tx.session.flush()
        checkpoints.let_go(job, tx)
        advance(tx, lease, "done")

    services.ledger.transact(effect)


def _require_same(name: str, found: str, logged: Leaf) -> None:
    if logged.digests.get(name) != found:
        raise RefusedError(LOST)
