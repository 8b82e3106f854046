"""Verify: load what execution left, have it judged, and record the judgement.

The verifier sees the retained rows, the published artifacts and the claim. It never sees the
method; what it must know of the destroyed, it gets from the sealed draft.
"""

from dataclasses import asdict

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.reconcile.escalation import CHECKS, checks_digest
from app.reconcile.judgement import is_judged
from app.reconcile.model_events import request_events
from app.service.context import Services
from app.steps import reached
from lethe.certificates.evidence import SCORES, Report, build_evidence, parse_evidence
from lethe.certificates.statement import VerifierPart
from models import (
    ErasureRequest,
    Model,
    Verification,
)
from workers.families import base as family
from workers.families.base import Family
from workers.jobs import checkpoints, endings, repair, versions
from workers.jobs.attempts import NextAttempt
from workers.jobs.case import ExecutedJob, Verdict, load
from workers.jobs.draft import OtherDraftError
from workers.jobs.lease import JobContext, advance
from workers.jobs.leased import leased
from workers.jobs.sweep import nudge_next
from workers.provenance import code_digest


def run(services: Services, job_id: str) -> None:
    """Judge an executed job; PASS goes on to certification, anything else to an attempt."""
    with leased(services, job_id, "verify") as lease:
        if lease is None:
            return
        try:
            with services.reading() as session:
                case = load(services, session, lease)
                ref = session.get_one(ErasureRequest, lease.request_id).ref
            events = [leaf.event or "" for _, leaf in request_events(services.ledger, ref)]
            if is_judged(events):
                # Chance passes what it refuted, if it is asked often enough.
                raise OtherDraftError("the log has a judgement of this execution already")
        except OtherDraftError as refusal:
            endings.give_up(services, lease, f"not verified: {refusal}")
            return
        kind, job = family.of(case.model), JobContext(services, lease, case.model)
        kind.check_here()  # before anything of the judgement is in the log
        # Only now: the digest of what is judged has been in the log since it was executed.
        seed = kind.draw_seed(job, case)
        with services.reading() as session:
            judge = kind.prepare(job, session, case, seed)
        judged = judge()
        evidence = _evidence(kind, case, judged)
        following = None
        if judged.report.result != "PASS":
            with services.reading() as session:
                following = kind.next_attempt(job, session, case, judged.report)
        reached("verify.judged")
        services.ledger.transact(lambda tx: _record(job, tx, case, judged, evidence, following))
        reached("verify.recorded")
    if lease is not None:
        nudge_next(services, lease.model_id)


def _evidence(kind: Family, case: ExecutedJob, judged: Verdict) -> bytes:
    parts = Report(
        verifier=VerifierPart(judged.verifier, judged.version, code_digest(*kind.judge_rooms)),
        result=judged.report.result,
        checks=judged.report.checks,
        details=dict(judged.details),
    )
    plan = case.plan
    statistics = {"before": plan.statistics_before, "after": plan.statistics_after}
    return build_evidence(plan.removal, parts, statistics)


def _record(
    job: JobContext,
    tx: Transaction,
    case: ExecutedJob,
    judged: Verdict,
    evidence: bytes,
    following: NextAttempt | None,
) -> None:
    services, lease, session = job.services, job.lease, tx.session
    report = judged.report
    request = session.get_one(ErasureRequest, lease.request_id)
    version_id = case.after.id
    assert version_id is not None
    artifact = services.artifacts.put(session, "evidence", evidence)
    found = Verification(
        request_id=request.id,
        version_id=version_id,
        result=report.result,
        report={"checks": [asdict(check) for check in report.checks]},
        evidence_id=artifact.id,
        verified_at=tx.now,
    )
    refuted = session.get(Verification, request.id)
    if refuted is not None:  # of the attempt before
        versions.shred(services, session, refuted.evidence_id)
    found = session.merge(found)
    payload = {
        "result": report.result,
        "evidence": artifact.digest,
        "class": case.plan.claim,
        # The evidence is destroyed with its attempt; this outlives it.
        CHECKS: checks_digest(parse_evidence(evidence).report.checks),
    }
    if judged.scores is not None:
        # So do the scores: they are all that can say whether an attempt was refuted rightly.
        payload[SCORES] = services.artifacts.put(session, SCORES, judged.scores).digest
    record_request_event(tx, request, "request.verified", payload)
    session.flush()
    checkpoints.let_go(job, tx)
    if report.result == "PASS":
        if judged.repeated:
            versions.record_repeated(tx, session.get_one(Model, lease.model_id), case.after)
        advance(tx, lease, "certify")
    else:
        repair.escalate(job, tx, found, following)
