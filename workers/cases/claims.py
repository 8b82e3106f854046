"""The claims about a case that every kind of model makes: its retained set, what was purged.

Facts about destroyed records come from the sealed draft.
"""

from collections.abc import Mapping, Sequence

from sqlmodel import Session, col, select

from app.reconcile.inputs import unwithdrawn, versions_of
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.scope import owners
from app.vault.errors import ShreddedError
from lethe.certificates import shape
from lethe.certificates.evidence import Removal, record_commitment
from models import Artifact, FeatureBlock, Model, Record, Subject
from models.database.session import chunks, read_by_id
from workers.cases.case import ExecutedJob
from workers.judge.base import Probe, PurgeClaim, RetainedSetClaim, UpdateClaim
from workers.updates import draft
from workers.updates.draft import Draft


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
