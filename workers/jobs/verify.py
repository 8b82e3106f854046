"""Verify: load what execution left, have it judged, and record the judgement.

The verifier sees the retained rows, the published artifacts and the claim. It never sees the
method; facts about destroyed records come from the sealed draft.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile

from sqlmodel import select

from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.reconcile.approval import APPROVED
from app.reconcile.judgement import ATTEMPT, CHECKS, checks_digest
from app.reconcile.model_events import requests_events
from app.service.context import Services
from app.steps import reached
from lethe.certificates.cost import JUDGED
from lethe.certificates.evidence import SCORES, Report, build_evidence
from lethe.certificates.statement import VerifierPart
from models import Artifact, ErasureRequest, Job, Model, Verification
from models.database.session import read_by_id
from workers.cases.case import ExecutedJob, NextAttempt, Verdict, load, load_others
from workers.families import base as family
from workers.families.base import Family
from workers.jobs import endings, held_out, repair
from workers.jobs.leased import leased, pass_on
from workers.leases import checkpoints
from workers.leases.lease import PACE, JobContext, Turn, advance, load_job
from workers.lineage import versions
from workers.provenance import code_digest
from workers.updates.draft import OtherDraftError
from workers.updates.update import timed


@dataclass(frozen=True, slots=True)
class Judged:
    """An executed job, the verdict on it, and the evidence file."""

    case: ExecutedJob
    verdict: Verdict
    evidence: bytes


def run(services: Services, job_id: str, turn: Turn | None = None) -> None:
    """Judge an executed job; PASS leads to certification, anything else to another attempt.

    The jobs behind it that the same update executed are judged with it, if the family can. They
    advance up to the first that does not pass. That one's verdict is recorded too, so that it
    cannot be judged again until it passes. Those after it get another version. A second try
    goes alone: a fault of one job must not hold up the others.
    """
    with leased(services, job_id, "verify", turn) as lease:
        if lease is None:
            return
        try:
            with services.reading() as session:
                job = load_job(services, session, lease)
                row = session.exec(select(Job).where(Job.id == lease.job_id)).one()
                case = load(services, session, row)
                kind = family.of(case.model)
                together = kind.judges_together and lease.tries == 1
                cases = [case, *(load_others(services, session, case) if together else ())]
        except OtherDraftError as refusal:
            endings.give_up(job, f"not verified: {refusal}")
            return
        job = replace(job, model=case.model)
        kind.check_here()  # before anything of the judgement is in the log
        # Only now: the digest of the judged version has been in the log since execution.
        seed = kind.draw_seed(job, case)
        with services.reading() as session:
            judge = kind.prepare(job, session, cases, seed)
        verdicts, seconds = timed(judge)
        # The same for all: they share one version.
        figure = held_out.measured_again(services, case.model, case.after)
        verdicts = [
            replace(one, details={**one.details, **figure, JUDGED: seconds}) for one in verdicts
        ]
        approvals = _approvals(services, cases)
        verdicts = [
            replace(verdict, details={**verdict.details, **approval})
            for verdict, approval in zip(verdicts, approvals, strict=False)
        ]
        judged = [
            Judged(one, verdict, _evidence(kind, one, verdict))
            for one, verdict in zip(cases, verdicts, strict=False)
        ]
        passed = list(takewhile(lambda one: one.verdict.report.result == "PASS", judged))
        refuted = judged[len(passed)] if len(passed) < len(judged) else None
        following = None
        if refuted is not None:
            with services.reading() as session:
                following = kind.next_attempt(
                    _of(job, refuted), session, refuted.case, refuted.verdict.report
                )
        reached("verify.judged")
        services.ledger.transact(lambda tx: _record_all(job, tx, passed, refuted, following))
        PACE.note(lease, len(judged))
        reached("verify.recorded")
    if lease is not None:
        pass_on(services, lease)


def _approvals(services: Services, cases: Sequence[ExecutedJob]) -> list[dict[str, str]]:
    """Return, for the evidence, the log entry that approved each request, if any."""
    leaves = requests_events(services.ledger, [one.request.ref for one in cases])
    found = []
    for case in cases:
        entries = [i for i, leaf in leaves[case.request.ref] if leaf.event == APPROVED]
        found.append({"decision.entry": str(entries[-1])} if entries else {})
    return found


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


def _record_all(
    job: JobContext,
    tx: Transaction,
    passed: Sequence[Judged],
    refuted: Judged | None,
    following: NextAttempt | None,
) -> None:
    """Record the verdicts on the leased job and those behind it, and move them on."""
    session = tx.session
    recorded = [*passed] if refuted is None else [*passed, refuted]
    ids = [one.case.request.id for one in recorded]
    requests = {one.id: one for one in read_by_id(session, ErasureRequest, ids)}
    earlier = {one.request_id: one for one in read_by_id(session, Verification, ids)}
    contents = [one.evidence for one in recorded]
    files = job.services.artifacts.put_all(session, "evidence", contents)
    found = None
    for one, file in zip(recorded, files, strict=True):
        request = requests[one.case.request.id]
        found = _record(job.services, tx, one, request, file, earlier.get(request.id))
    tx.session.flush()
    checkpoints.let_go(job, tx)
    if passed:
        first, *others = passed
        if first.verdict.repeated:
            model = tx.session.get_one(Model, job.lease.model_id)
            versions.record_repeated(tx, model, first.case.after)
        moved = [(one.case.job_id, one.case.token) for one in others]
        advance(tx, job.lease, "certify", moved)
    if refuted is not None:
        assert found is not None
        repair.escalate(_of(job, refuted), tx, found, refuted.case.plan, following)


def _of(job: JobContext, judged: Judged) -> JobContext:
    """Return the context of a job that is judged with the leased one, under its lease."""
    case = judged.case
    lease = replace(
        job.lease,
        job_id=case.job_id,
        token=case.token,
        step=case.step,
        request_id=case.request.id,
    )
    return replace(job, lease=lease)


def _record(
    services: Services,
    tx: Transaction,
    judged: Judged,
    request: ErasureRequest,
    artifact: Artifact,
    refuted: Verification | None,
) -> Verification:
    """Store and log a verdict. artifact: its evidence; refuted: the verdict before, if any."""
    session, report, case = tx.session, judged.verdict.report, judged.case
    version_id = case.after.id
    assert version_id is not None
    found = Verification(
        request_id=request.id,
        version_id=version_id,
        result=report.result,
        report={"checks": [asdict(check) for check in report.checks]},
        evidence_id=artifact.id,
        verified_at=tx.now,
    )
    if refuted is None:
        tx.insert(Verification, found.model_dump())
    else:  # the previous attempt's verdict
        versions.shred(services, session, refuted.evidence_id, "evidence")
        found = session.merge(found)
    payload = {
        "result": report.result,
        "evidence": artifact.digest,
        "class": case.plan.claim,
        # The evidence is destroyed with its attempt; this digest outlives it.
        CHECKS: checks_digest(report.checks),
        ATTEMPT: case.plan.attempt,
    }
    if judged.verdict.scores is not None:
        # So do the scores: only they can show later whether an attempt was refuted rightly.
        scores = services.artifacts.put(session, SCORES, judged.verdict.scores)
        payload[SCORES] = scores.digest
    record_request_event(tx, request, "request.verified", payload)
    return found
