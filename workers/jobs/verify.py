"""Verify: load by digest what execution left, have it judged, and record the judgement.

The verifier sees the retained rows, the published artifacts and the claim. It never sees the
method; what it must know of the destroyed, it gets from the sealed draft.
"""

import os
from dataclasses import asdict

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.reconcile.escalation import CHECKS, checks_digest
from app.reconcile.judgement import is_judged
from app.reconcile.model_events import request_events
from app.service.context import Services
from app.steps import reached
from lethe.certificates.evidence import Report as EvidenceReport
from lethe.certificates.evidence import build_evidence, parse_evidence
from lethe.certificates.statement import VerifierPart
from models import (
    ErasureRequest,
    Model,
    Verification,
)
from workers.families import base as family
from workers.jobs import (
    checkpoints,
    judgements,
    repair,
    score_files,
    versions,
)
from workers.jobs.case import Case, Judged, load
from workers.jobs.context import JobContext
from workers.jobs.draft import OtherDraftError
from workers.jobs.ladder import NextAttempt
from workers.jobs.lease import Lease, advance, leased
from workers.jobs.sweep import nudge_next
from workers.provenance import code_digest


def run(services: Services, job_id: str) -> None:
    """Judge an executed job; PASS goes on to certification, anything else ends it."""
    with leased(services, job_id, "verify") as lease:
        if lease is None:
            return
        try:
            with services.reading() as session:
                case = load(services, session, lease)
                ref = session.get_one(ErasureRequest, lease.request_id).ref
            if is_judged(
                [leaf.event or "" for _, leaf in request_events(services.ledger, ref)]
            ):
                # Chance passes what it refuted, if it is asked often enough.
                raise OtherDraftError("the log has a judgement of this execution already")
        except OtherDraftError as refusal:
            repair.give_up(services, lease, f"not verified: {refusal}")
            return
        kind, job = family.of(case.model), JobContext(services, lease, case.model)
        kind.check_here()  # before anything of the judgement is in the log
        # Only now: the digest of what is judged has been in the log since it was executed.
        # A wrong head passes Freivalds once in 2^59 seeds; a test of samples, much sooner.
        sampled = case.plan.claim == "empirical-approximate"
        seed = judgements.draw_seed(services, lease, case) if sampled else os.urandom(32)
        with services.reading() as session:
            judge = kind.prepare(job, session, case, seed)
        judged = judge()
        report = judged.report
        parts = EvidenceReport(
            verifier=VerifierPart(
                judged.verifier, judged.version, code_digest(*kind.judge_rooms)
            ),
            result=report.result,
            checks=report.checks,
            details=dict(judged.details),
        )
        statistics = {
            "before": case.plan.statistics_before,
            "after": case.plan.statistics_after,
        }
        evidence = build_evidence(case.plan.removal, parts, statistics)
        following = None
        if report.result != "PASS":
            with services.reading() as session:
                following = kind.next_attempt(job, session, case, report)
        reached("verify.judged")
        services.ledger.transact(
            lambda tx: _record(services, tx, lease, case, judged, evidence, following)
        )
        reached("verify.recorded")
    if lease is not None:
        nudge_next(services, lease.model_id)


def _record(
    services: Services,
    tx: Transaction,
    lease: Lease,
    case: Case,
    judged: Judged,
    evidence: bytes,
    following: NextAttempt | None,
) -> None:
    assert lease.request_id is not None
    report = judged.report
    session = tx.session
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
    record_request_event(
        tx,
        request,
        "request.verified",
        {
            "result": report.result,
            "evidence": artifact.digest,
            "class": case.plan.claim,
            # The evidence is destroyed with its attempt; this outlives it.
            CHECKS: checks_digest(parse_evidence(evidence).report.checks),
            **score_files.keep(services, session, judged.scores),
        },
    )
    session.flush()
    checkpoints.let_go(services, tx, lease)
    if report.result == "PASS":
        if judged.verifier == "exact-retrained":
            versions.record_repeated(tx, session.get_one(Model, lease.model_id), case.after)
        advance(tx, lease, "certify")
    else:
        repair.escalate(services, tx, lease, found, following)
