"""What is told of the last attempt, from the log and the evidence that it names.

The table `verifications` has the same verdict and checks, and whoever can write the database
can change them. A certificate would repeat it for ever, so it is not read here.
"""

from sqlmodel import Session, select

from app.reconcile.escalation import CONTRADICTED, NOT_JUDGED, logged_escalation
from app.reconcile.judgement import opened
from app.reconcile.model_events import request_events
from app.service.context import Services
from app.vault.errors import NotStoredError, ShreddedError
from lethe.certificates.escalation import AttemptPart
from lethe.certificates.evidence import parse_evidence
from lethe.errors import LetheError
from models import Artifact, ErasureRequest, Job
from workers.jobs.draft import Draft
from workers.jobs.judged import UNREADABLE, NotJudgedError


def attempts_since(
    services: Services, session: Session, job: Job, plan: Draft
) -> tuple[AttemptPart, ...]:
    """Return the attempt that a job was last executed on, and those skipped after it.

    Raises:
        NotJudgedError: What is stored does not open the log's entries, or the evidence that
            the log names cannot be read. The message names what, and no person.
        SealError: The evidence's file is missing or was altered.
        LetheError: The log itself cannot be read, or is not the one that was signed.
    """
    request = session.get_one(ErasureRequest, job.request_id)
    leaves = request_events(services.ledger, request.ref)
    try:
        executed, *after = logged_escalation(opened(session, request, leaves)).since
    except UNREADABLE as error:
        title = error.title if isinstance(error, LetheError) else type(error).__name__
        raise NotJudgedError(
            f"what the log says of the attempt cannot be read: {title}"
        ) from None
    name = plan.name
    if executed.method != name:
        raise NotJudgedError("the draft is of another method than the log has as executed")
    parts = [attempt.told for attempt in after if attempt.told is not None]
    verdict = executed.verdict
    if verdict is None:
        return AttemptPart(name, "NONE", NOT_JUDGED, ()), *parts
    if verdict["result"] == "PASS":
        return AttemptPart(name, "NONE", CONTRADICTED, ()), *parts
    report = parse_evidence(_evidence(services, session, verdict["evidence"])).report
    return AttemptPart(name, verdict["result"], None, report.checks), *parts


def _evidence(services: Services, session: Session, digest: str) -> bytes:
    """Return the evidence file of a digest, whatever row points at it."""
    query = select(Artifact.id).where(Artifact.digest == digest, Artifact.kind == "evidence")
    for found in session.exec(query):
        try:
            return services.artifacts.get(session, found)  # checks the digest
        except (NotStoredError, ShreddedError):
            continue
    raise NotJudgedError(
        "the log names the evidence of this judgement, but it is not stored: restore it from a "
        "backup, then decide `retry`"
    )
