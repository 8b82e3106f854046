"""The unlearning methods a request may name, and the attempts that it may take.

Attempt 1 is the requested method, attempt n + 1 the nth step of the policy's ladder. The
attempt after the last step retrains or refits the model from the retained set, and is never
left out. If that does not pass either, an operator decides.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.schemas.families.manifests import manifest_of
from app.schemas.requests import AttemptView
from lethe.catalogue import METHODS, TESTED, data_of, family_of
from models import ErasureRequest, Job, Model, RequestEvent


def offered(config: dict[str, object]) -> tuple[str, ...]:
    """Return the methods for a model of this configuration."""
    family = family_of(config)
    return tuple(one.name for one in METHODS.values() if one.model == family)


def least_records(config: dict[str, Any], method: str) -> int:
    """Return how many records a request must erase for a result of the method to be certified.

    Each matched pair of the policy's tests has an erased row of its own. 0 if no test decides;
    even with this many records, a test may be inconclusive.
    """
    return int(config["policy"]["minimum_pairs"]) if method in TESTED else 0


DECISION = "decision"


def last_attempt(config: Mapping[str, Any]) -> int:
    """Return the number of the attempt that retrains or refits the model."""
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
    method, escalated = request.method, False
    for event in events:
        if event.event == "request.escalated" and "attempt" in event.payload:
            method, escalated = event.payload["method"], event.payload["attempt"] > 1
    ahead: list[str] = []
    if job.done_at is None:
        last = last_attempt(model.config)
        refit = manifest_of(model.config).last_attempt
        # Once a retraining has replaced a method, no other method follows.
        approximate = [] if method == refit else _ladder(model.config)[job.attempt - 1 :]
        ahead = [spelled(step) for step in approximate]
        # A first retraining is repeated once, without access to the erased data.
        ahead += [refit] if job.attempt < last and not (method == refit and escalated) else []
        ahead.append(DECISION)
    return AttemptView(number=job.attempt, method=method, ahead=ahead)


def _ladder(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of the policy's ladder, none without a readable policy."""
    policy = config.get("policy")
    found = policy.get("ladder") if isinstance(policy, dict) else None
    return found if isinstance(found, list) else []
