"""The verifier's input and output: the executed job, the common claims, and the verdict.

The verifier never sees the method; facts about destroyed records come from the sealed draft.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlmodel import Session, col, select

from app.reconcile.inputs import is_as_received, unwithdrawn, versions_of
from app.reconcile.judgement import is_judged
from app.reconcile.model_events import request_events, requests_events
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.scope import owners
from app.vault.errors import ShreddedError
from lethe.certificates import shape
from lethe.certificates.evidence import Removal, record_commitment
from lethe.errors import LetheError
from lethe.log.entries import Leaf as LogLeaf
from models import (
    Artifact,
    ErasureRequest,
    FeatureBlock,
    Job,
    Model,
    ModelVersion,
    Record,
    RequestEvent,
    Subject,
)
from models.database.session import chunks, read_by_id
from workers.jobs import draft
from workers.jobs.draft import Draft, OtherDraftError
from workers.jobs.leases.lease import queued_behind
from workers.jobs.model import versions
from workers.judge.base import Probe, PurgeClaim, Report, RetainedSetClaim, UpdateClaim

ELSE = "the request is about something else than what was received"


@dataclass(frozen=True, slots=True)
class ExecutedJob:
    """An executed job, its model, and the versions before and after the update.

    token: fences the job, so that only the holder of the leased job may have changed it.
    """

    job_id: str
    token: int
    step: int
    request: ErasureRequest
    plan: Draft
    model: Model
    before: ModelVersion
    after: ModelVersion


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's report, and further measurements for the evidence, as strings.

    scores: the scores file from which the report can be recomputed; only for reports on
    samples. repeated: whether the judge repeated the training that made the version.
    """

    verifier: str
    version: str
    report: Report
    details: Mapping[str, str]
    scores: bytes | None = None
    repeated: bool = False


# Runs without a session: repeating a training takes minutes.
Judge = Callable[[], Verdict]
# Verdicts on the executed jobs of one version, in their order.
Judges = Callable[[], Sequence[Verdict]]


def load(
    services: Services,
    session: Session,
    job: Job,
    first: ExecutedJob | None = None,
    leaves: Sequence[tuple[int, LogLeaf]] | None = None,
) -> ExecutedJob:
    """Load the versions that an executed job is about.

    first: a loaded job that may be of the same version. leaves: the log's entries of the
    request, if the caller has read them.

    Raises:
        OtherDraftError: The log has another execution of the request, or none, or already a
            judgement of this one: a refuted version would pass by chance if it were judged
            often enough. Or the received scope differs from the one that would be judged.
    """
    request = session.get_one(ErasureRequest, job.request_id)
    if leaves is None:
        leaves = request_events(services.ledger, request.ref)
    events = draft.open_events(session, request, leaves)
    plan = draft.load_executed(services, session, job, events)
    if is_judged([leaf.event or "" for _, leaf in leaves]):
        raise OtherDraftError("the log has a judgement of this execution already")
    model = session.get_one(Model, job.model_id)
    if not is_as_received(request, model, events):
        raise OtherDraftError(ELSE)
    numbers = plan.before_number, plan.number
    if first is not None and (first.before.number, first.after.number) == numbers:
        before, after = first.before, first.after
    else:
        # The version of the update that removed the records, or of a refit that replaced it.
        before, after = (versions.numbered(session, job.model_id, one) for one in numbers)
    return ExecutedJob(
        job_id=job.id,
        token=job.lease_token,
        step=job.attempt,
        request=request,
        plan=plan,
        model=model,
        before=before,
        after=after,
    )


def load_others(
    services: Services, session: Session, first: ExecutedJob
) -> Iterator[ExecutedJob]:
    """Yield the other jobs that the update of a loaded job executed, in their order.

    Stops at the first one that cannot be loaded: it gets the error at its own turn.
    """
    behind = queued_behind(session, first.job_id, "verify")
    leaves = read_stored(services, session, behind)
    for job in behind:
        try:
            case = load(services, session, job, first, leaves.get(job.id))
        except (OtherDraftError, LetheError, OSError):
            return
        if case.after.id != first.after.id:
            return
        yield case


def read_stored(
    services: Services, session: Session, jobs: Sequence[Job]
) -> dict[str, list[tuple[int, LogLeaf]]]:
    """Prefetch what is stored about executed jobs in few queries: the session caches it.

    Returns the log's entries of each job's request, by the job's id.
    """
    ids = [job.request_id for job in jobs if job.request_id is not None]
    requests = {one.id: one for one in read_by_id(session, ErasureRequest, ids)}
    read_by_id(session, Artifact, [job.draft_id for job in jobs if job.draft_id is not None])
    leaves = requests_events(services.ledger, [one.ref for one in requests.values()])
    read_by_id(session, RequestEvent, [index for own in leaves.values() for index, _ in own])
    return {
        job.id: leaves[requests[job.request_id].ref]
        for job in jobs
        if job.request_id in requests
    }


def retained_commitments(session: Session, model: Model, ids: Sequence[str]) -> list[bytes]:
    """Return the commitments of the records with these ids, in their order.

    A row without its record, or a record without its row, changes the root, which then does not
    match.
    """
    query = select(Record.record, Record.salt).where(Record.model_id == model.id)
    salts = {record: bytes(salt) for record, salt in session.exec(query)}
    return [
        record_commitment(salts[record], record) if record in salts else b"" for record in ids
    ]


def retained_set_claim(case: ExecutedJob, retained: Sequence[bytes]) -> RetainedSetClaim:
    """Return the claim that exactly a request's records left and `retained` stayed."""
    plan, before, after = case.plan, case.before, case.after
    removal = shape.read(Removal, plan.removal)
    erased = [record.commitment for record in removal.records]
    earlier, later = plan.others()
    link = sorted([*retained, *later])
    return RetainedSetClaim(
        before=sorted([*link, *erased]),
        after=link,
        erased=erased,
        before_root=removal.before.root,
        before_count=removal.before.count,
        after_root=removal.after.root,
        after_count=removal.after.count,
        update=UpdateClaim(
            earlier=earlier,
            later=later,
            before_root=bytes(before.retained_root),
            before_count=before.retained_count,
            after_root=bytes(after.retained_root),
            after_count=after.retained_count,
            added=[commitment for commitment, _ in draft.read_leaves(plan.added)],
        ),
    )


def purge_claims(
    services: Services, session: Session, cases: Sequence[ExecutedJob], ids: Sequence[str] = ()
) -> list[PurgeClaim]:
    """Return each case's claim that the stored data of its records were destroyed.

    ids: of the retained rows, if the judge does not read them itself.
    """
    artifacts = {one.id for case in cases for one in case.plan.artifacts}
    subjects = list({one.subject_id for case in cases for one in case.plan.blocks})
    read_by_id(session, Artifact, list(artifacts))
    read_by_id(session, Subject, subjects)
    blocks = {one.subject_id: one for one in read_by_id(session, FeatureBlock, subjects)}
    return [
        PurgeClaim(
            probes=[
                *_probe(services, session, case.plan, blocks),
                *_probe_unlisted(services, case),
                *_probe_owner(session, case),
            ],
            erased_rows=[str(item["record"]) for item in case.plan.removal["records"]],
            retained_rows=ids,
        )
        for case in cases
    ]


def _probe_owner(session: Session, case: ExecutedJob) -> list[Probe]:
    """Return a probe for each stored block of the client or subject to be erased.

    A probe for the records is added, since some models store none of their rows in blocks.
    """
    assert case.model.id is not None
    scope = Scope.model_validate(case.request.scope)
    probes = []
    found = owners(session, case.model.id, scope)
    for subject in found:
        block = session.get(FeatureBlock, subject.id)
        digest = draft.sha256_hex(bytes(block.ciphertext)) if block is not None else ""
        probes.append(Probe("owner-block", digest, block is not None))
    for chunk in chunks([subject.id for subject in found]):
        held = select(Record.id).where(col(Record.subject_id).in_(chunk)).limit(1)
        probes.append(Probe("owner-records", "", session.exec(held).first() is not None))
    return probes


def _probe_unlisted(services: Services, case: ExecutedJob) -> list[Probe]:
    """Return a probe for each version of the log whose file the execution did not destroy."""
    plan, model = case.plan, case.model
    kept = unwithdrawn(services.ledger, model, plan.before_number + 1).values()
    refuted = versions_of(services.ledger, model)[plan.before_number : plan.number - 1]
    heads = {leaf.digests["head"] for leaf in [*kept, *(leaf for _, leaf in refuted)]}
    listed = {artifact.digest for artifact in plan.artifacts}
    return [Probe("artifact", digest, True) for digest in sorted(heads - listed)]


def _probe(
    services: Services, session: Session, plan: Draft, blocks: Mapping[int, FeatureBlock]
) -> list[Probe]:
    probes = []
    for artifact in plan.artifacts:
        try:
            services.artifacts.get(session, artifact.id)
            readable = True
        except ShreddedError:
            readable = False
        probes.append(Probe("artifact", artifact.digest, readable))
    for old in plan.blocks:
        # If a later generation replaced the block, its key is destroyed; its bytes are gone if
        # they differ.
        subject = session.get_one(Subject, old.subject_id)
        block = blocks.get(old.subject_id)
        replaced = subject.wrapped_key is None or subject.key_generation > old.generation
        same = block is not None and draft.sha256_hex(bytes(block.ciphertext)) == old.ciphertext
        probes.append(Probe("feature-block", old.ciphertext, same or not replaced))
    return probes
