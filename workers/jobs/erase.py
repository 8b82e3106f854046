"""Erase: remove claimed records, publish the next version, destroy what held them."""

from dataclasses import dataclass

from sqlmodel import Session

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.service.context import Services
from app.service.scope import bury, open_tombstone_key, record_tag
from app.steps import reached
from lethe.certificates.retained import record_commitment
from models import ErasureRequest, FeatureBlock, Model, ModelVersion, Subject
from workers.errors import RefusedError
from workers.families import base as family
from workers.families.ridge import releasing
from workers.families.ridge.blocks import AnyBlock, encode_block
from workers.jobs import (
    batch,
    checkpoints,
    draft,
    versions,
)
from workers.jobs import before as before_artifact
from workers.jobs.asking import dropped_subjects
from workers.jobs.batch import Member
from workers.jobs.draft import Draft, RewrittenBlock
from workers.jobs.ladder import escalated, executed
from workers.jobs.lease import Lease, LeaseLostError, advance, follow
from workers.jobs.registered import OtherModelError, as_registered
from workers.jobs.removal import AnswerError
from workers.jobs.update import Update
from workers.jobs.versions import RetainedSet
from workers.method_audits import numbers as audit_numbers


def run(services: Services, lease: Lease, model: Model) -> None:
    """Remove a request's claimed records from its model, and those of requests like it.

    If the method declines the removal of all together, the leased request goes alone: what
    is wrong with one of them is not the fault of the others. model: its row as it was compared
    with the log.

    Raises:
        RefusedError: The method declined; nothing was changed.
        OtherModelError: The row was changed meanwhile; nothing was changed besides.
        LeaseLostError: Another worker holds the job now.
    """
    members = batch.collect(services, lease)
    if not members:  # parked: a client must answer first
        return
    assert lease.request_id is not None
    with services.reading() as session:
        # What goes with a block that a person decided to remove goes with it or not at all.
        together = bool(dropped_subjects(session, lease.request_id))
    if len(members) > 1 and not together:
        try:
            _execute(services, lease, model, members)
            return
        except OtherModelError:
            raise
        except RefusedError:
            members = members[:1]
    try:
        _execute(services, lease, model, members)
    except AnswerError as error:
        release = error.release
        services.ledger.transact(lambda tx: releasing.ask_anew(services, tx, lease, release))


def _execute(services: Services, lease: Lease, model: Model, members: list[Member]) -> None:
    with services.reading() as session:
        before = versions.current(session, model)
        assert before is not None
    update = family.of(model).forget(services, lease, model, before, members)
    with services.reading() as session:
        leaving = {record for member in members for record in member.salts}
        audited = audit_numbers.of_records(session, model, leaving)
        retained = versions.commitments(session, lease.model_id)
        dropped = versions.commitments_of(session, lease.model_id, update.dropped)
    chain = Chain.of(members, retained, dropped)
    reached("execute.computed")
    going: list[tuple[str, str]] = []

    def effect(tx: Transaction) -> None:
        going.extend(_commit(services, tx, lease, members, before, update, chain))
        audit_numbers.destroy(tx.session, audited)

    services.ledger.transact(effect)
    for job_id, stage in going:
        services.dispatcher.nudge(job_id, stage)


@dataclass(frozen=True, slots=True)
class Chain:
    """The sets that lead from the version before to the one after, a link for each member.

    roots: those between, for the log.
    """

    links: list[batch.Link]
    roots: list[bytes]
    after: RetainedSet

    @classmethod
    def of(cls, members: list[Member], retained: list[bytes], dropped: list[bytes]) -> "Chain":
        """Return the chain from the sorted set `retained`; `dropped` go last."""
        links = batch.prove(retained, members, dropped)
        gone = {
            record_commitment(salt, record)
            for member in members
            for record, salt in member.salts.items()
        }
        gone |= set(dropped)
        after = RetainedSet.of([value for value in retained if value not in gone])
        roots = [link.root for link in links]
        # Where nothing else goes, the last one is the version's own.
        return cls(links, roots if dropped else roots[:-1], after)


def _commit(
    services: Services,
    tx: Transaction,
    lease: Lease,
    members: list[Member],
    before: ModelVersion,
    update: Update,
    chain: Chain,
) -> list[tuple[str, str]]:
    """Publish the version and destroy what held the records; return jobs to nudge."""
    session, made = tx.session, update.made
    model = as_registered(services.ledger, session, lease.model_id)
    if model.current_version != before.number:
        raise LeaseLostError(lease.job_id)
    rewritten = {
        subject_id: _rewrite(services, tx, subject_id, rest)
        for subject_id, rest in update.rest.items()
    }
    session.flush()
    _bury(services, session, model, lease, members, update.dropped)
    ids = [member.request_id for member in members]
    going = releasing.settle(services, tx, ids, list(update.rest))
    version = versions.publish(
        services, tx, model, lease, made.encoded, chain.after, chain.roots
    )
    shredded = versions.withdraw_earlier(services, tx, model, version)
    before_id = before_artifact.keep(services, tx, update.before)
    parameters = {**made.parameters, "batch": str(len(members))}
    if update.dropped:
        parameters["dropped"] = str(len(update.dropped))
    drafts = []
    for member, link in zip(members, chain.links, strict=True):
        plan = Draft(
            ref=session.get_one(ErasureRequest, member.request_id).ref,
            removal=link.removal,
            earlier=draft.write_commitments(link.earlier),
            later=draft.write_commitments(link.later),
            before_number=before.number,
            number=version.number,
            head_before=before.head_digest,
            statistics_before=before.statistics_digest,
            statistics_after=made.encoded.statistics,
            method=made.method,
            method_version=made.method_version,
            claim=made.claim,
            parameters=parameters | batch.gone_before(member),
            bounds=dict(made.bounds),
            artifacts=shredded,
            blocks=[rewritten[subject] for subject in member.owned()],
            feature_rows=len(member.salts),
            rows_gone=list(update.rows_gone),
            rows_learned=list(update.rows_learned),
        )
        drafts.append(draft.store(services, session, plan))
    reached("execute.written")
    for member, stored in zip(members, drafts, strict=True):
        request = session.get_one(ErasureRequest, member.request_id)
        request.state = "verifying"
        if made.escalated is not None:
            why = escalated("NONE", made.escalated, lease.rung, made.method)
            record_request_event(tx, request, "request.escalated", why)
        record_request_event(tx, request, "request.executed", executed(made, stored.digest))
    session.flush()
    for member, stored in zip(members[1:], drafts[1:], strict=True):
        values = {"draft_id": stored.id, "before_id": before_id}
        follow(tx, lease, member.job_id, member.token, "verify", **values)
    checkpoints.let_go(services, tx, lease)
    advance(tx, lease, "verify", draft_id=drafts[0].id, before_id=before_id)
    return going


def _bury(
    services: Services,
    session: Session,
    model: Model,
    lease: Lease,
    members: list[Member],
    dropped: frozenset[str],
) -> None:
    """Take the records out of the training set; their tombstones say by whose request."""
    key = open_tombstone_key(services.master, model)
    owners = {record: member.request_id for member in members for record in member.salts}
    owners |= {record: str(lease.request_id) for record in dropped}
    bury(session, lease.model_id, key, owners)
    for request_id in {*owners.values()}:
        tags = [record_tag(key, record) for record, by in owners.items() if by == request_id]
        ref = session.get_one(ErasureRequest, request_id).ref
        services.journal.erased(session, model.ref, tags, ref)
    leaving = sorted(owners)
    if versions.remove_records(session, lease.model_id, leaving) != len(leaving):
        raise LeaseLostError(lease.job_id)


def _rewrite(
    services: Services, tx: Transaction, subject_id: int, rest: AnyBlock | None
) -> RewrittenBlock:
    subject = tx.session.get_one(Subject, subject_id)
    block = tx.session.get_one(FeatureBlock, subject_id)
    old = RewrittenBlock(
        subject_id, block.key_generation, draft.sha256_hex(bytes(block.ciphertext))
    )
    payload = None if rest is None else encode_block(rest)
    rows = 0 if rest is None else len(rest.records)
    services.features.rewrite(tx.session, subject, payload, rows)
    return old
