"""The rungs of a request: the method asked for, the policy's ladder, then a model made anew.

Rung 0 is the method that a request asks for, rung n the nth of the policy's ladder. The rung
after the last of them makes the model anew of what is retained, and is never left out. What
that does not mend either waits for an operator.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.schemas.requests import RungView
from app.service.methods import is_network
from models import ErasureRequest, Job, Model, RequestEvent

ANEW = {True: "retrain", False: "refit"}  # by whether the model is a network
DECISION = "decision"


def last_rung(config: Mapping[str, Any]) -> int:
    """Return the number of the rung that makes a model of this configuration anew."""
    return 1 + len(_ladder(config))


def spelled(rung: Mapping[str, Any]) -> str:
    """Return a rung of a policy in one word, such as puf-special(guard.rise=2)."""
    told = []
    for name, value in sorted(rung["settings"].items()):
        members = value.items() if isinstance(value, Mapping) else [("", value)]
        told += [(f"{name}.{key}".rstrip("."), one) for key, one in sorted(members)]
    words = {True: "true", False: "false", None: "null"}
    said = [
        f"{name}={words[one] if one is None or isinstance(one, bool) else one}"
        for name, one in told
    ]
    return f"{rung['method']}({','.join(said)})" if said else str(rung["method"])


def rung_view(
    model: Model, request: ErasureRequest, job: Job, events: Sequence[RequestEvent]
) -> RungView | None:
    """Return where a request is on its ladder and what may come next, None of a masked model.

    Its rows were never here: there is nothing that another rung could go on from.
    """
    if model.config["data"] == "masked":
        return None
    method, climbed = request.method, 0
    for event in events:
        if event.event == "request.escalated" and "rung" in event.payload:
            method, climbed = event.payload["method"], event.payload["rung"]
    ahead: list[str] = []
    if job.done_at is None:
        last = last_rung(model.config)
        anew = ANEW[is_network(model.config)]
        # Where a method gave way to the retraining, no other method comes after it.
        approximate = [] if method == anew else _ladder(model.config)[job.rung :]
        ahead = [spelled(rung) for rung in approximate]
        # A first retraining is repeated once, with nothing of the erased at hand.
        ahead += [anew] if job.rung < last and not (method == anew and climbed) else []
        ahead.append(DECISION)
    return RungView(number=job.rung, method=method, ahead=ahead)


def _ladder(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the policy's rungs; models without a policy, or with none to read, have none."""
    policy = config.get("policy")
    found = policy.get("ladder") if isinstance(policy, dict) else None
    return found if isinstance(found, list) else []
