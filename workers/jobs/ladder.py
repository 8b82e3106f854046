"""What comes after a judgement that was no PASS, for any kind of model, and what is told of it.

The choice is made before the transaction that records the judgement, and stands in it: in the
log's event, in the job's rung, and, until the next rung is done, beside the verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.reconcile.climbed import METHOD
from lethe.certificates.climb import RungPart, from_line, read_climb, write_climb
from workers.jobs.draft import DRAFT, Draft
from workers.jobs.update import Made


@dataclass(frozen=True, slots=True)
class Climb:
    """The next rung. skipped: which were left out before it, and why, in words.

    compared: whether its model is compared with what was kept of the one before the update.
    """

    rung: int
    method: str
    skipped: tuple[str, ...] = ()
    compared: bool = False


def escalated(
    result: str, checks: str, rung: int, method: str, skipped: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what the event request.escalated says: what was found, and what comes next.

    result: the verdict, or NONE where no judgement came of the rung before.
    """
    said: dict[str, Any] = {"result": result, "checks": checks, "rung": rung, "method": method}
    return {**said, "skipped": list(skipped)} if skipped else said


def executed(made: Made, draft: str) -> dict[str, Any]:
    """Return what the event request.executed says: which version, and by which method.

    draft: hex SHA-256 of the draft, which no other request's can take the place of.
    """
    digests = {"head": made.encoded.head_digest, "statistics": made.encoded.statistics}
    return {**digests, METHOD: made.name, DRAFT: draft}


def climbed(
    plan: Draft, since: Sequence[RungPart], gave_way: str | None = None
) -> dict[str, str]:
    """Return what a certificate says of the rungs before: whose, what was found, their cost.

    since: the rung that the draft is of, and those skipped after it. gave_way: what became of
    the rung that was begun after them, where no model came of that.
    """
    rungs = [*read_climb(plan.parameters), *since]
    rungs += [] if gave_way is None else [from_line(gave_way)]
    cost = plan.parameters.get("climb.flops", "0"), plan.parameters.get("cost.flops", "0")
    flops = sum(int(part) for part in cost)
    return {
        "asked": plan.parameters.get("asked", plan.method),
        **write_climb(rungs),
        **({"climb.flops": str(flops)} if flops else {}),
    }
