"""What comes after a judgement that was no PASS, for any kind of model, and what is told of it.

The choice is made before the transaction that records the judgement, and stands in it: in the
log's event, in the job's rung, and, until the next rung is done, beside the verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from app.certificates.climb import RungPart, Verdict, from_line, read_climb, write_climb
from app.certificates.statement import CheckPart
from models import Verification
from workers.tasks.draft import Draft


@dataclass(frozen=True, slots=True)
class Climb:
    """The next rung. skipped: which were left out before it, and why, in words.

    compared: whether it is another approximation, to be compared with the model before.
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


def climbed(
    plan: Draft,
    found: Verification | None,
    skipped: Sequence[str] = (),
    gave_way: str | None = None,
) -> dict[str, str]:
    """Return what a certificate says of the rungs before: whose, what was found, their cost.

    found: None where the request was executed with the one that was refuted. gave_way: what
    became of the rung that was begun after it, where no model came of that.
    """
    method = plan.parameters.get("rung", plan.method)
    rungs = [*read_climb(plan.parameters), _rung(method, found), *map(from_line, skipped)]
    rungs += [] if gave_way is None else [from_line(gave_way)]
    cost = plan.parameters.get("climb.flops", "0"), plan.parameters.get("cost.flops", "0")
    flops = sum(int(part) for part in cost)
    return {
        "asked": plan.parameters.get("asked", plan.method),
        **write_climb(rungs),
        **({"climb.flops": str(flops)} if flops else {}),
    }


def _rung(method: str, found: Verification | None) -> RungPart:
    if found is None:
        return RungPart(method, "NONE", "not judged by itself", ())
    checks = tuple(
        CheckPart(
            number=check["number"],
            name=check["name"],
            value=check["value"],
            # A judgement that an earlier release recorded has neither of these.
            interval=_pair(check.get("interval")),
            threshold=check.get("threshold"),
            passed=check["passed"],
        )
        for check in found.report["checks"]
    )
    return RungPart(method, cast(Verdict, found.result), None, checks)


def _pair(ends: Sequence[str] | None) -> tuple[str, str] | None:
    return None if ends is None else (ends[0], ends[1])
