"""Publish a version: bury the erased records, rewrite blocks, withdraw versions, log it.

This is the same for every kind of model, and for erasures executed at their own turn or
together with a round: records are buried, blocks rewritten and earlier versions destroyed in
the one transaction that publishes the version without the records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.reconcile.inputs import is_quarantined
from app.reconcile.judgement import ATTEMPT, METHOD
from app.retained_pages import RetainedSet
from app.service.context import Services
from app.service.desk import people
from app.service.queue import MEND
from app.service.review import unapproved
from app.service.scope import write_tombstones
from app.steps import reached
from app.vault.master import open_tombstone_key, record_tag
from lethe.certificates.statement import AttemptPart
from models import Artifact, ErasureRequest, FeatureBlock, Job, Model, ModelVersion, Subject
from models.database.session import read_by_id
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs import held_out
from workers.jobs.attempts import escalated, escalation_parameters
from workers.jobs.held_out import VersionFigure
from workers.leases import checkpoints
from workers.leases.lease import JobContext, LeaseLostError, follow
from workers.lineage import versions
from workers.lineage.chain import BatchMember, Chain
from workers.lineage.logged import EXCHANGED, as_registered
from workers.lineage.versions import OtherModelError
from workers.provenance import code_digest, environment
from workers.updates import draft
from workers.updates.draft import DRAFT, Draft, RewrittenBlock, ShreddedArtifact
from workers.updates.update import StoredBlock, Update, UpdateResult, earlier_seconds

OUT_OF_SERVICE = (
    "the log has the model as out of service, the database as ready: run `lethe log fsck`, and "
    "find out who writes to the database"
)
NOT_MEASURED = VersionFigure()  # for a model without held-out rows
FIRST = 1  # the attempt of a request whose records are still in the training set
KEPT = ("batch", "data", "dropped")  # parameters that a later attempt does not change


class UnapprovedError(RefusedError):
    """The log lacks an approval that its model requires. `requests`: ids of those without."""

    def __init__(self, requests: Sequence[str]) -> None:
        self.requests = requests
        super().__init__("the log has no approval of the request: it waits for review")


@dataclass(frozen=True, slots=True)
class Published:
    """The version, and artifact ids: the drafts in the members' order, the model before."""

    version: ModelVersion
    drafts: list[str]
    before_id: str | None


def unchanged(job: JobContext, tx: Transaction, base: int | None) -> Model:
    """Return the model's row, if it is still as registered and at the version computed from.

    Nor is anything published of a model that is out of service by the log, unless it is mended.

    Two rows without versions that swap their references each match a registration: so the
    reference must be the one that was computed for.

    Raises:
        OtherModelError: The row was changed meanwhile; the transaction must roll back.
        LeaseLostError: It has another version; the transaction must roll back.
    """
    lease = job.lease
    mends = lease.kind == MEND
    model = as_registered(job.services.ledger, tx.session, lease.model_id, mends=mends)
    if model.ref != job.model.ref:
        raise OtherModelError(EXCHANGED)
    if not mends and is_quarantined(job.services.ledger, model.ref):
        raise OtherModelError(OUT_OF_SERVICE)
    if model.current_version != base:
        raise LeaseLostError(lease.job_id)
    return model


def publish(
    job: JobContext,
    tx: Transaction,
    before: ModelVersion | None,
    members: Sequence[BatchMember],
    update: Update,
    chain: Chain,
    *,
    stage: str | None = None,
    shredded: Sequence[ShreddedArtifact] = (),
    measured: VersionFigure = NOT_MEASURED,
) -> Published:
    """Publish an update and pass its members to the verifier, except the leased job.

    before: None only for a first version, from which nothing is erased. stage: the stage of the
    members' jobs, if it is not the leased job's. shredded: what the caller already destroyed of
    the model before. measured: the version's figure, and the held-out rows that remain.

    Raises:
        UnapprovedError: The log has no approval of a member.
        HeldOutChangedError: The held-out rows were changed meanwhile.
        LeaseLostError: A record is already removed, or another worker took a member's job.
    """
    services, lease = job.services, job.lease
    session, result = tx.session, update.result
    model = session.get_one(Model, lease.model_id)
    of_members = [member.request_id for member in members]
    asked = read_by_id(session, ErasureRequest, of_members)
    held = unapproved(services.ledger, session, model, asked, tx.now)
    if held:
        raise UnapprovedError([one.id for one in held])
    read_by_id(session, Subject, list(update.rest))
    read_by_id(session, FeatureBlock, list(update.rest))
    rewritten = {
        subject_id: _rewrite(services, tx, subject_id, rest)
        for subject_id, rest in update.rest.items()
    }
    session.flush()
    if members:
        _bury(job, tx, model, members, update.dropped, measured)
    contributed = None if members else chain.added_root
    held_out.settle(job, tx, model, measured)
    version = versions.append(
        services,
        tx,
        model,
        lease,
        result.encoded,
        chain.after,
        chain.roots,
        contributed,
        measured.figure,
    )
    if not members:
        if before is not None:
            versions.destroy_state(services, session, lease.model_id, before.number)
        reached("execute.written")
        return Published(version, [], None)
    assert before is not None
    withdrawn = versions.withdraw_earlier(services, tx, model, version)
    before_id = checkpoints.keep_before(services, tx, update.before)
    parameters = {**result.parameters, "batch": str(len(members))}
    if update.dropped:
        parameters["dropped"] = str(len(update.dropped))
    plans = []
    for member, link in zip(members, chain.links, strict=True):
        plan = Draft(
            ref=member.ref,
            removal=link.removal,
            earlier=draft.write_leaves(link.earlier),
            later=draft.write_leaves(link.later),
            before_number=before.number,
            number=version.number,
            head_before=before.head_digest,
            statistics_before=before.statistics_digest,
            statistics_after=result.encoded.statistics,
            method=result.method,
            method_version=result.method_version,
            claim=result.claim,
            parameters=parameters | _erased_before(member),
            bounds=dict(result.bounds),
            artifacts=[*withdrawn, *shredded],
            before_id=before_id,
            blocks=[rewritten[one] for one in member.owned() if one in rewritten],
            feature_rows=sum(one in rewritten for one in member.subjects.values()),
            added=draft.write_leaves(chain.added),
            round_id=update.round_id,
            rows_gone=list(update.rows_gone),
            rows_learned=list(update.rows_learned),
            code=code_digest(*family.of(model).rooms),
            environment=environment(),
        )
        plans.append(plan)
    drafts = draft.store(services, session, plans)
    reached("execute.written")
    ids = [stored.id for stored in drafts]
    # The statements above expired them: reload them in one query, not one by one.
    requests = {one.id: one for one in read_by_id(session, ErasureRequest, of_members)}
    for member, stored in zip(members, drafts, strict=True):
        request = requests[member.request_id]
        request.state = "verifying"
        if result.escalated is not None:
            why = escalated("NONE", result.escalated, FIRST, result.method)
            record_request_event(tx, request, "request.escalated", why)
        payload = executed(result, stored.digest, FIRST)
        record_request_event(tx, request, "request.executed", payload)
    session.flush()
    moved = {
        (member.job_id, member.token): draft_id
        for member, draft_id in zip(members, ids, strict=True)
        if member.job_id != lease.job_id
    }
    follow(tx, moved, stage or lease.stage, "verify", before_id=before_id)
    return Published(version, ids, before_id)


def _erased_before(member: BatchMember) -> dict[str, str]:
    return {"erasedBefore": str(member.erased_before)} if member.erased_before else {}


@dataclass(frozen=True, slots=True)
class Refuted:
    """A request that was executed in a refuted version: its job and its draft.

    since: the attempt that the draft belongs to, and the methods skipped after it.
    """

    row: Job
    plan: Draft
    since: Sequence[AttemptPart]

    @property
    def following(self) -> int:
        """The number of the attempt that replaces it."""
        return self.plan.attempt + 1


def replace_refuted(
    job: JobContext,
    tx: Transaction,
    result: UpdateResult,
    retained: RetainedSet,
    refuted: Sequence[Refuted],
    measured: VersionFigure,
) -> list[Artifact]:
    """Publish the version of a later attempt in place of a refuted one; return the drafts.

    Each request gets a draft of the new version, in the order of `refuted`. The refuted version
    is destroyed, and so are its drafts.
    """
    services, session = job.services, tx.session
    model = session.get_one(Model, job.lease.model_id)
    held_out.settle(job, tx, model, measured)
    version = versions.append(
        services, tx, model, job.lease, result.encoded, retained, figure=measured.figure
    )
    shredded = versions.withdraw_earlier(services, tx, model, version, certified=bool(refuted))
    plans = []
    for one in refuted:
        kept = {name: one.plan.parameters[name] for name in KEPT if name in one.plan.parameters}
        plan = replace(
            one.plan,
            number=version.number,
            statistics_after=result.encoded.statistics,
            method=result.method,
            method_version=result.method_version,
            claim=result.claim,
            parameters={
                **result.parameters,
                **kept,
                **escalation_parameters(one.plan, one.since, result.escalated),
                **earlier_seconds(one.plan.parameters),
            },
            bounds=dict(result.bounds),
            artifacts=[*one.plan.artifacts, *shredded],
            code=code_digest(*family.of(model).rooms),
            environment=environment(),
        )
        plans.append(plan)
    drafts = draft.store(services, session, plans)
    for one, stored in zip(refuted, drafts, strict=True):
        assert one.row.draft_id is not None
        services.artifacts.shred(session, one.row.draft_id, DRAFT)
        one.row.draft_id, one.row.step = stored.id, job.lease.step
        session.get_one(ErasureRequest, one.row.request_id).state = "verifying"
    return drafts


def _bury(
    job: JobContext,
    tx: Transaction,
    model: Model,
    members: Sequence[BatchMember],
    dropped: frozenset[str],
    measured: VersionFigure,
) -> None:
    """Take the records out of the training set; their tombstones name the erasing request."""
    session, lease = tx.session, job.lease
    key = open_tombstone_key(job.services.root_secret, model)
    owners = {record: member.request_id for member in members for record in member.salts}
    owners |= {record: str(lease.request_id) for record in dropped}
    write_tombstones(session, lease.model_id, key, owners)
    tags: dict[str, list[bytes]] = {}
    for record, request_id in owners.items():
        tags.setdefault(request_id, []).append(record_tag(key, record))
    for member in members:
        job.services.journal.erased(session, model.ref, tags[member.request_id], member.ref)
    people.bury(job.services, tx, model, owners, measured.gone)
    leaving = sorted(owners)
    if versions.remove_records(session, lease.model_id, leaving) != len(leaving):
        raise LeaseLostError(lease.job_id)


def _rewrite(
    services: Services, tx: Transaction, subject_id: int, rest: StoredBlock | None
) -> RewrittenBlock:
    subject = tx.session.get_one(Subject, subject_id)
    block = tx.session.get_one(FeatureBlock, subject_id)
    old = RewrittenBlock(
        subject_id, block.key_generation, draft.sha256_hex(bytes(block.ciphertext))
    )
    payload = None if rest is None else rest.encode()
    rows = 0 if rest is None else len(rest.records)
    services.features.rewrite(tx.session, subject, payload, rows)
    return old


def executed(result: UpdateResult, draft: str, attempt: int) -> dict[str, Any]:
    """Return the payload of request.executed: which version, and by which method.

    draft: hex SHA-256 of the draft, so that no other request's draft can replace it.
    """
    digests = {"head": result.encoded.head_digest, "statistics": result.encoded.statistics}
    return {**digests, METHOD: result.name, DRAFT: draft, ATTEMPT: attempt}
