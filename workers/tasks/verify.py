"""Verify: load by digest what execution left, have it judged, and record the judgement.

The verifier sees the retained rows, the published artifacts and the claim. It never sees the
method; what it must know of the destroyed, it gets from the sealed draft.
"""

import base64
import os
from dataclasses import dataclass

from sqlmodel import Session, select

from app.certificates.evidence import Report as EvidenceReport
from app.certificates.evidence import build_evidence
from app.certificates.retained import record_commitment
from app.certificates.statement import CheckPart, VerifierPart
from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.scope import owners
from app.steps import reached
from app.vault.errors import ShreddedError
from models import (
    ErasureRequest,
    FeatureBlock,
    Job,
    Model,
    ModelVersion,
    Record,
    Subject,
    Verification,
)
from workers.artifacts import decode_head
from workers.provenance import code_digest
from workers.tasks import draft, repair, versions
from workers.tasks.blocks import Block, decode_block
from workers.tasks.draft import Draft
from workers.tasks.lease import Lease, advance, leased
from workers.tasks.sweep import nudge_next
from workers.verifier import registry
from workers.verifier.base import (
    ClaimedStatistics,
    ExactClaim,
    Mode,
    Probe,
    PurgeClaim,
    Report,
    RetainedSetClaim,
    RidgeClaim,
)


@dataclass(frozen=True, slots=True)
class _Case:
    """What is to be judged, and what must be recorded with the judgement."""

    claim: ExactClaim
    plan: Draft
    version_id: int


def run(services: Services, job_id: str) -> None:
    """Judge an executed job; PASS goes on to certification, anything else ends it."""
    with leased(services, job_id, "verify") as lease:
        if lease is None:
            return
        with services.reading() as session:
            case = _collect(services, session, lease)
        verifier = registry.get(case.plan.claim)
        report = verifier.verify(case.claim)
        parts = EvidenceReport(
            verifier=VerifierPart(verifier.id, verifier.version, code_digest("verifier")),
            result=report.result,
            checks=tuple(
                CheckPart(c.number, c.name, c.value, c.interval, c.threshold, c.passed)
                for c in report.checks
            ),
            details={
                "rows": str(sum(len(rows) for rows in case.claim.rows)),
                "mode": case.claim.ridge.mode,
                "seed": (case.claim.ridge.seed or b"").hex(),
            },
        )
        statistics = {
            "before": case.plan.statistics_before,
            "after": case.plan.statistics_after,
        }
        evidence = build_evidence(case.plan.removal, parts, statistics)
        reached("verify.judged")
        services.ledger.transact(
            lambda tx: _record(services, tx, lease, case, report, evidence)
        )
        reached("verify.recorded")
    if lease is not None:
        nudge_next(services, lease.model_id)


def _record(
    services: Services,
    tx: Transaction,
    lease: Lease,
    case: _Case,
    report: Report,
    evidence: bytes,
) -> None:
    assert lease.request_id is not None
    session = tx.session
    request = session.get_one(ErasureRequest, lease.request_id)
    artifact = services.artifacts.put(session, "evidence", evidence)
    found = Verification(
        request_id=request.id,
        version_id=case.version_id,
        result=report.result,
        report={
            "checks": [
                {"number": c.number, "name": c.name, "value": c.value, "passed": c.passed}
                for c in report.checks
            ]
        },
        evidence_id=artifact.id,
        verified_at=tx.now,
    )
    refuted = session.get(Verification, request.id)
    if refuted is not None:  # of the rung before
        versions.shred(services, session, refuted.evidence_id)
    found = session.merge(found)
    record_request_event(
        tx, request, "request.verified", {"result": report.result, "evidence": artifact.digest}
    )
    session.flush()
    if report.result == "PASS":
        advance(tx, lease, "certify")
    else:
        repair.climb(services, tx, lease, found)


def _collect(services: Services, session: Session, lease: Lease) -> _Case:
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    plan = draft.load(services, session, job)
    model = session.get_one(Model, lease.model_id)
    after = session.exec(
        select(ModelVersion).where(
            ModelVersion.job_id == job.id, ModelVersion.rung == lease.rung
        )
    ).one()
    before = session.exec(
        select(ModelVersion).where(
            ModelVersion.model_id == model.id, ModelVersion.number == plan.before_number
        )
    ).one()
    blocks = [
        decode_block(payload)
        for _, payload in services.features.load_many(session, lease.model_id)
    ]
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
        # Only now: the digest of what is judged has been in the log since it was executed.
        seed=os.urandom(32),
    )
    assert after.id is not None
    claim = ExactClaim(
        ridge=ridge,
        rows=[block.rows for block in blocks],
        retained_set=_retained_set(session, lease, plan, blocks, before, after),
        purge=PurgeClaim(
            probes=[*_probe(services, session, plan), *_probe_owner(session, lease)],
            erased_rows=[str(item["record"]) for item in plan.removal["records"]],
            retained_rows=[record for block in blocks for record in block.records],
        ),
    )
    return _Case(claim, plan, after.id)


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
    blocks: list[Block],
    before: ModelVersion,
    after: ModelVersion,
) -> RetainedSetClaim:
    query = select(Record.record, Record.salt).where(Record.model_id == lease.model_id)
    salts = {record: bytes(salt) for record, salt in session.exec(query)}
    # From the ids that lie with the rows, so that a row without its record, or a record
    # without its row, shows as a root that does not fit.
    retained = sorted(
        record_commitment(salts[record], record) if record in salts else b""
        for block in blocks
        for record in block.records
    )
    erased = [base64.b64decode(item["commitment"]) for item in plan.removal["records"]]
    return RetainedSetClaim(
        before=sorted([*retained, *erased]),
        after=retained,
        erased=erased,
        before_root=bytes(before.retained_root),
        before_count=before.retained_count,
        after_root=bytes(after.retained_root),
        after_count=after.retained_count,
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
