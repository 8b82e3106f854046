"""What comes after a judgement that was no PASS, for any kind of model, and what is told of it.

The choice is made before the transaction that records the judgement, and stands in it: in the
log's event, in the job's attempt, and, until the next attempt is done, beside the verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.reconcile.escalation import METHOD
from lethe.certificates.escalation import (
    AttemptPart,
    from_line,
    read_escalation,
    write_escalation,
)
from workers.jobs.draft import DRAFT, Draft
from workers.jobs.update import UpdateResult


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """The next attempt. skipped: which were left out before it, and why, in words.

    compared: whether its model is compared with what was kept of the one before the update.
    """

    attempt: int
    method: str
    skipped: tuple[str, ...] = ()
    compared: bool = False


def escalated(
    result: str, checks: str, attempt: int, method: str, skipped: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what the event request.escalated says: what was found, and what comes next.

    result: the verdict, or NONE where no judgement came of the attempt before.
    """
    said: dict[str, Any] = {
        "result": result,
        "checks": checks,
        "attempt": attempt,
        "method": method,
    }
    return {**said, "skipped": list(skipped)} if skipped else said


def executed(made: UpdateResult, draft: str) -> dict[str, Any]:
    """Return what the event request.executed says: which version, and by which method.

    draft: hex SHA-256 of the draft, which no other request's can take the place of.
    """
    digests = {"head": made.encoded.head_digest, "statistics": made.encoded.statistics}
    return {**digests, METHOD: made.name, DRAFT: draft}


def escalation_parameters(
    plan: Draft, since: Sequence[AttemptPart], gave_way: str | None = None
) -> dict[str, str]:
    """Return what a certificate says of the attempts before: whose, what was found, their cost.

    since: the attempt that the draft is of, and those skipped after it. gave_way: what became
    of the attempt that was begun after them, where no model came of that.
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
