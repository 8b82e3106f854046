"""What comes after a judgement that was no PASS, for any kind of model, and what is told of it.

The choice is made before the transaction that records the judgement, and stands in it: in the
log's event, in the job's rung, and, until the next rung is done, beside the verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    said = f"{method}: not judged by itself"
    if found is not None:
        failed = [
            f"{check['name']}: {check['value']}"
            for check in found.report["checks"]
            if not check["passed"]
        ]
        said = f"{method}: {found.result} ({'; '.join(failed)})"
    earlier = plan.parameters.get("climb")
    told = [*([] if earlier is None else [earlier]), said, *skipped]
    told += [] if gave_way is None else [gave_way]
    cost = plan.parameters.get("climb.flops", "0"), plan.parameters.get("cost.flops", "0")
    flops = sum(int(part) for part in cost)
    return {
        "asked": plan.parameters.get("asked", plan.method),
        "climb": " | ".join(told),
        **({"climb.flops": str(flops)} if flops else {}),
    }
