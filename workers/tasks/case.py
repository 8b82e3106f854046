"""What the verifier is given: the retained rows or sums, the artifacts, and the claim.

It never sees the method; what it must know of the destroyed comes from the sealed draft.
"""

import os
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, nextafter

from sqlmodel import Session, select

from app.certificates import shape
from app.certificates.retained import Removal, record_commitment
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.scope import owners
from app.vault.errors import ShreddedError
from models import ErasureRequest, FeatureBlock, Job, Model, ModelVersion, Record, Subject
from workers.artifacts import decode_head
from workers.methods.base import RidgeConfig
from workers.tasks import before as before_statistics
from workers.tasks import draft, round_end, versions
from workers.tasks.blocks import AnyBlock, Block, MessageBlock, decode_block
from workers.tasks.draft import Draft
from workers.tasks.lease import Lease
from workers.verifier.base import (
    ClaimedStatistics,
    ExactClaim,
    Mode,
    Probe,
    PurgeClaim,
    RetainedSetClaim,
    RidgeClaim,
    UpdateClaim,
)


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be judged, and what must be recorded with the judgement."""

    claim: ExactClaim
    plan: Draft
    version_id: int


def collect(services: Services, session: Session, lease: Lease) -> Case:
    """Load what an executed job left to be judged."""
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    plan = draft.load(services, session, job)
    model = session.get_one(Model, lease.model_id)
    # The version of the update that removed the records, or of a refit that replaced it.
    after = versions.numbered(session, lease.model_id, plan.number)
    before = versions.numbered(session, lease.model_id, plan.before_number)
    blocks = [
        decode_block(payload)
        for _, payload in services.features.load_many(session, lease.model_id)
    ]
    ids = [record for block in blocks for record in block.records]
    if plan.round_id is not None:  # nothing lies here but the ids and the sum
        ids = list(session.exec(select(Record.record).where(Record.model_id == model.id)))
    config = versions.ridge_config(model)
    # The head that clients download, not the solver's; the witness only helps to judge it.
    head, _ = decode_head(services.artifacts.get(session, after.head_id))
    state = versions.load_state(services, session, after)
    ridge = RidgeClaim(
        dimension=config.dimension,
        classes=config.classes,
        exponents=config.exponents,
        bits=config.bits,
        penalty=config.penalty,
        statistics_digest=after.statistics_digest,
        head=head,
        witness=state.witness,
        bound=state.bound,
        statistics=ClaimedStatistics(
            state.statistics.gram, state.statistics.moment, state.statistics.rows
        ),
        mode=_mode(model, after.number),
        attested=_attested(config, blocks),
        # Only now: the digest of what is judged has been in the log since it was executed.
        seed=os.urandom(32),
    )
    masked = round_end.claim_of(services, session, plan)
    # A round that adds as well may narrow the posterior: there is nothing to compare then.
    if masked is None:
        earlier = before_statistics.load(services, session, job)
    else:
        earlier = None if plan.added else masked.before
    # Sketches are rounded to integers entry by entry: their differences need not be definite.
    if earlier is not None and state.attested == 0:
        ridge = replace(ridge, before=earlier, before_digest=plan.statistics_before)
    if plan.claim == "certified-approximate":
        ridge = replace(ridge, tolerance=versions.budget(model))
    assert after.id is not None
    claim = ExactClaim(
        ridge=ridge,
        rows=[block.rows for block in blocks if isinstance(block, Block)],
        messages=_messages(model, blocks),
        masked=masked,
        retained_set=_retained_set(session, lease, plan, ids, before, after),
        purge=PurgeClaim(
            probes=[*_probe(services, session, plan), *_probe_owner(session, lease)],
            erased_rows=[str(item["record"]) for item in plan.removal["records"]],
            retained_rows=ids,
        ),
    )
    return Case(claim, plan, after.id)


def _attested(config: RidgeConfig, blocks: list[AnyBlock]) -> float:
    """Return how far the sketches of clients are from their rows, on their word, at most.

    In feature units; from what is stored, not from what the method kept of it.
    """
    codes = sum(
        Fraction(block.message.residual) for block in blocks if isinstance(block, MessageBlock)
    )
    features = codes * Fraction(4) ** max(config.exponents)
    return nextafter(float(features), inf) if features else 0.0


def _messages(model: Model, blocks: list[AnyBlock]) -> list[ClaimedStatistics] | None:
    """Return what clients sent in place of rows, None where the model has none of it."""
    if model.config["data"] != "statistics":
        return None
    return [
        ClaimedStatistics(
            block.message.statistics.gram,
            block.message.statistics.moment,
            block.message.statistics.rows,
        )
        for block in blocks
        if isinstance(block, MessageBlock)
    ]


def _mode(model: Model, number: int) -> Mode:
    """Return how a version's statistics are judged, by the policy logged at registration."""
    policy = model.config["verification"]
    if policy["statistics"] == "alternate":
        return "full" if number % policy["full_every"] == 0 else "freivalds"
    return "freivalds" if policy["statistics"] == "freivalds" else "full"


def _retained_set(
    session: Session,
    lease: Lease,
    plan: Draft,
    ids: list[str],
    before: ModelVersion,
    after: ModelVersion,
) -> RetainedSetClaim:
    query = select(Record.record, Record.salt).where(Record.model_id == lease.model_id)
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
