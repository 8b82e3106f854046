"""The unlearning methods a request may name, and the attempts that it may take.

Step 1 of a job is the requested method, step n + 1 the nth of the policy's ladder. The step
after the last of them retrains or refits the model from the retained set, and is never left
out. If that does not pass either, an operator decides. Steps may be skipped; the attempts that
people see are numbered without gaps (`lethe.certificates.statement.AttemptPart`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.reconcile.judgement import ATTEMPT, ESCALATED, EXECUTED, METHOD
from app.schemas.families.manifests import manifest_of
from app.schemas.requests import AttemptView
from lethe.catalogue import METHODS, data_of, family_of
from models import ErasureRequest, Job, Model, RequestEvent


def offered(config: dict[str, object]) -> tuple[str, ...]:
    """Return the methods for a model of this configuration."""
    family = family_of(config)
    return tuple(one.name for one in METHODS.values() if one.model == family)


DECISION = "decision"


def last_step(config: Mapping[str, Any]) -> int:
    """Return the number of the step that retrains or refits the model."""
    return 2 + len(_ladder(config))


def spelled(step: Mapping[str, Any]) -> str:
    """Return a step of a policy's ladder in one word, such as puf-special(guard.rise=2)."""
    pairs = []
    for name, value in sorted(step["settings"].items()):
        members = value.items() if isinstance(value, Mapping) else [("", value)]
        pairs += [(f"{name}.{key}".rstrip("."), one) for key, one in sorted(members)]
    words = {True: "true", False: "false", None: "null"}
    settings = [
        f"{name}={words[one] if one is None or isinstance(one, bool) else one}"
        for name, one in pairs
    ]
    return f"{step['method']}({','.join(settings)})" if settings else str(step["method"])


def attempt_view(
    model: Model, request: ErasureRequest, job: Job, events: Sequence[RequestEvent]
) -> AttemptView | None:
    """Return a request's attempt and those that may follow, None for a masked model.

    The rows of a masked model were never here, so no other attempt is possible.
    """
    if not data_of(model.config).rebuildable:
        return None
    number, method = _current(request, job, events)
    refit = manifest_of(model.config).last_method
    if method is None:
        # No entry names it yet: an operator's decision made the model be built from its rows.
        method = request.method if number == 1 or job.done_at is not None else refit
    ahead: list[str] = []
    if job.done_at is None:
        last, escalated = last_step(model.config), number > 1
        # Once a retraining has replaced a method, no other method follows.
        approximate = [] if method == refit else _ladder(model.config)[job.step - 1 :]
        ahead = [spelled(step) for step in approximate]
        # A first retraining is repeated once, without access to the erased data.
        ahead += [refit] if job.step < last and not (method == refit and escalated) else []
        ahead.append(DECISION)
    return AttemptView(number=number, method=method, ahead=ahead)


def _current(
    request: ErasureRequest, job: Job, events: Sequence[RequestEvent]
) -> tuple[int, str | None]:
    """Return the number of a request's last attempt or of the one that is made, and its method.

    The numbers are counted from the executions, as in the log and on the certificate.
    """
    executed, methods = 0, {1: request.method}
    for event in events:
        executed += event.event == EXECUTED
        if event.event == ESCALATED and ATTEMPT in event.payload:
            methods[event.payload[ATTEMPT]] = event.payload[METHOD]
        elif event.event == EXECUTED and METHOD in event.payload:
            methods.setdefault(executed, event.payload[METHOD])
    if job.stage == "execute" and job.done_at is None:
        return executed + 1, methods.get(executed + 1)
    number = max(executed, *methods)
    return number, methods.get(number)


def _ladder(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of the policy's ladder, none without a readable policy."""
    policy = config.get("policy")
    found = policy.get("ladder") if isinstance(policy, dict) else None
    return found if isinstance(found, list) else []
