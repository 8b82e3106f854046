"""Attempts: the next step after a judgement that was not PASS, and the log's record of it.

The next attempt is chosen before the transaction that records the judgement, and is stored in
it: in the log's event, in the job's step, and beside the verdict until that attempt is done.

A job counts *steps*: 1 is the requested method, n + 1 the nth step of the policy's ladder, and
skipping leaves gaps. What others see is the number of the *attempt*, without gaps: see
`lethe.certificates.statement.AttemptPart`.
"""

from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, select

from app.reconcile.judgement import (
    ATTEMPT,
    CONTRADICTED,
    NOT_JUDGED,
    logged_escalation,
    opened,
)
from app.reconcile.model_events import request_events
from app.service.context import Services
from app.vault.errors import NotStoredError, ShreddedError
from lethe.certificates.evidence import parse_evidence
from lethe.certificates.statement import (
    AttemptPart,
    from_line,
    read_escalation,
    write_escalation,
)
from lethe.errors import LetheError
from models import Artifact, ErasureRequest, Job
from workers.jobs.logged_judgement import UNREADABLE, NotJudgedError
from workers.updates.draft import Draft


def escalated(
    result: str, checks: str, attempt: int, method: str, skipped: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the payload of request.escalated: the failed checks, and the next attempt.

    result: the verdict, or NONE if the attempt before was never judged. attempt: the number of
    the next one.
    """
    payload: dict[str, Any] = {
        "result": result,
        "checks": checks,
        ATTEMPT: attempt,
        "method": method,
    }
    return {**payload, "skipped": list(skipped)} if skipped else payload


def escalation_parameters(
    plan: Draft, since: Sequence[AttemptPart], gave_way: str | None = None
) -> dict[str, str]:
    """Return a certificate's parameters about the earlier attempts: numbers, results and cost.

    since: the attempt that the draft belongs to, and the methods skipped after it. gave_way:
    the outcome of a method begun after them that produced no model.
    """
    attempts = [*read_escalation(plan.parameters), *since]
    attempts += [] if gave_way is None else [from_line(gave_way)]
    cost = plan.parameters.get("escalation.flops", "0"), plan.parameters.get("cost.flops", "0")
    flops = sum(int(part) for part in cost)
    return {
        "asked": plan.parameters.get("asked", plan.method),
        **write_escalation(attempts),
        **({"escalation.flops": str(flops)} if flops else {}),
    }


def attempts_since(
    services: Services, session: Session, job: Job, plan: Draft
) -> tuple[AttemptPart, ...]:
    """Return the attempt that a job was last executed in, and the methods skipped after it.

    Raises:
        NotJudgedError: The stored keys do not open the log's entries, or the evidence that the
            log names cannot be read. The message names what failed, and no person.
        SealError: The evidence file is missing or was altered.
        LetheError: The log itself cannot be read, or does not match its signed checkpoint.
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
    number, name = plan.attempt, plan.name
    if executed.method != name:
        raise NotJudgedError(
            "the draft names another method than the one the log records as executed"
        )
    if executed.number != number:
        raise NotJudgedError(
            "the draft has another number of the attempt than the one the log records"
        )
    parts = [attempt.part for attempt in after if attempt.part is not None]
    verdict = executed.verdict
    if verdict is None:
        return AttemptPart(number, name, "NONE", NOT_JUDGED, ()), *parts
    if verdict["result"] == "PASS":
        return AttemptPart(number, name, "NONE", CONTRADICTED, ()), *parts
    report = parse_evidence(_evidence(services, session, verdict["evidence"])).report
    return AttemptPart(number, name, verdict["result"], None, report.checks), *parts


def _evidence(services: Services, session: Session, digest: str) -> bytes:
    """Return the evidence file with a digest, whichever row points at it."""
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
