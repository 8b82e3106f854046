"""The verifier's input and output: the executed job, the common claims, and the verdict.

It never sees the method; what it must know of the destroyed comes from the sealed draft.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlmodel import Session, select

from app.schemas.requests import Scope
from app.service.context import Services
from app.service.scope import owners
from app.vault.errors import ShreddedError
from lethe.certificates import shape
from lethe.certificates.retained import Removal, record_commitment
from models import ErasureRequest, FeatureBlock, Job, Model, ModelVersion, Record, Subject
from workers.jobs import draft, versions
from workers.jobs.draft import Draft
from workers.jobs.lease import JobContext, Lease
from workers.judge.base import Probe, PurgeClaim, Report, RetainedSetClaim, UpdateClaim


@dataclass(frozen=True, slots=True)
class ExecutedJob:
    """An executed job, its model, and the versions on both sides of what it did."""

    plan: Draft
    model: Model
    before: ModelVersion
    after: ModelVersion


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's report, and further measurements for the evidence, as strings.

    scores: the scores file that the report can be computed from again, of samples only.
    repeated: whether the judge repeated the training that made the version, to judge it.
    """

    verifier: str
    version: str
    report: Report
    details: Mapping[str, str]
    scores: bytes | None = None
    repeated: bool = False


# Runs without a session: a training that is repeated takes minutes.
Judge = Callable[[], Verdict]


def load(services: Services, session: Session, lease: Lease) -> ExecutedJob:
    """Load which versions an executed job is about."""
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    plan = draft.load(services, session, job)
    return ExecutedJob(
        plan=plan,
        model=session.get_one(Model, lease.model_id),
        before=versions.numbered(session, lease.model_id, plan.before_number),
        # The version of the update that removed the records, or of a refit that replaced it.
        after=versions.numbered(session, lease.model_id, plan.number),
    )


def retained_set_claim(session: Session, case: ExecutedJob, ids: list[str]) -> RetainedSetClaim:
    """Return the claim that exactly a request's records left; `ids` lie with the rows."""
    plan, before, after = case.plan, case.before, case.after
    query = select(Record.record, Record.salt).where(Record.model_id == case.model.id)
    salts = {record: bytes(salt) for record, salt in session.exec(query)}
    # From the ids that lie with the rows, so that a row without its record, or a record
    # without its row, shows as a root that does not fit.
    retained = sorted(
        record_commitment(salts[record], record) if record in salts else b"" for record in ids
    )
    removal = shape.read(Removal, plan.removal)
    erased = [record.commitment for record in removal.records]
    earlier = draft.read_commitments(plan.earlier)
    later = draft.read_commitments(plan.later)
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
            added=draft.read_commitments(plan.added),
        ),
    )


def purge_claim(job: JobContext, session: Session, plan: Draft, ids: list[str]) -> PurgeClaim:
    """Return the claim that what held the records is gone; `ids` are what is left."""
    return PurgeClaim(
        probes=[*_probe(job.services, session, plan), *_probe_owner(session, job.lease)],
        erased_rows=[str(item["record"]) for item in plan.removal["records"]],
        retained_rows=ids,
    )


def _probe_owner(session: Session, lease: Lease) -> list[Probe]:
    """Return a probe for each stored block of the client or subject that was to go."""
    request = session.get_one(ErasureRequest, lease.request_id)
    scope = Scope.model_validate(request.scope)
    probes = []
    for subject in owners(session, lease.model_id, scope):
        block = session.get(FeatureBlock, subject.id)
        digest = draft.sha256_hex(bytes(block.ciphertext)) if block is not None else ""
        probes.append(Probe("owner-block", digest, block is not None))
    return probes


def _probe(services: Services, session: Session, plan: Draft) -> list[Probe]:
    probes = []
    for artifact in plan.artifacts:
        try:
            services.artifacts.get(session, artifact.id)
            readable = True
        except ShreddedError:
            readable = False
        probes.append(Probe("artifact", artifact.digest, readable))
    for old in plan.blocks:
        # Its key is gone if a later generation replaced it; its bytes, if they differ.
        subject = session.get_one(Subject, old.subject_id)
        block = session.get(FeatureBlock, old.subject_id)
        replaced = subject.wrapped_key is None or subject.key_generation > old.generation
        same = block is not None and draft.sha256_hex(bytes(block.ciphertext)) == old.ciphertext
        probes.append(Probe("feature-block", old.ciphertext, same or not replaced))
    return probes
