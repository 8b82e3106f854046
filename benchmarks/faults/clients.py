"""What clients do: requests, and an operator's calls of the API."""

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from httpx2 import Response

from benchmarks.faults.workload import TRIES, StuckError, Told
from lethe.signing.keys import PrivateKey, public_pem
from tests.installation import Installation
from tests.small import MODEL, ROWS, Caller, manifest, pack, rows

OTHER = "second"  # a model that a workload registers
CLIENT, NEW = "c1", 3  # whose rows are contributed, and how many
BATCH = (("r1",), ("r2", "r6"), ("r3",))


def answered(call: Callable[[], Response], *good: int) -> Response:
    """Call until the answer has one of these statuses. Raises StuckError."""
    seen: Any = None
    for attempt in range(TRIES):
        try:
            answer = call()
        except Exception as error:  # the process would have logged it and closed the connection
            seen = repr(error)
        else:
            if answer.status_code in good:
                return answer
            seen = answer.status_code, answer.text[:300]
            if answer.status_code < 500:
                break
        time.sleep(0.01 * attempt)
    raise StuckError(str(seen))


def submitted(
    made: Installation, told: Told, records: tuple[str, ...], model: str = MODEL
) -> str:
    """Submit a request for some records until it is acknowledged; return its id."""
    return asked(made, told, {"level": "sample", "records": list(records)}, model)


def asked(
    made: Installation, told: Told, scope: dict[str, Any], model: str, **fields: Any
) -> str:
    """Submit one request until it is acknowledged; return its id."""
    named = scope.get("records", [scope.get("client")])
    once = {"idempotency-key": "-".join(named)}
    fields = {"model": model, **fields}
    accepted = answered(
        lambda: made.caller.erase(scope, fields=fields, headers=once), 202
    ).json()
    receipt = accepted["receipt"]
    told("request", [accepted["id"], receipt["log_index"], receipt["leaf"]])
    return str(accepted["id"])


def erase(made: Installation, told: Told) -> None:
    """Submit one request."""
    submitted(made, told, ("r1", "r2"))


def batch(made: Installation, told: Told) -> None:
    """Submit three, which become one job."""
    for records in BATCH:
        submitted(made, told, records)


def withdraw(made: Installation, told: Told) -> None:
    """Submit a request, and withdraw it."""
    request_id = submitted(made, told, ("r1", "r2"))
    answered(lambda: made.caller.signed("DELETE", f"/v1/requests/{request_id}"), 200)
    told("withdrawn", request_id)


def register(made: Installation, told: Told) -> None:
    """Register a model."""

    def call() -> Response:
        return made.caller.operator(
            "POST",
            "/v1/models",
            files={"data": ("rows.npz", pack(rows()))},
            data={"manifest": json.dumps(manifest(ref=OTHER))},
        )

    answered(call, 200, 201)
    answered(call, 200, 201)  # the same again: the second upload's file is removed
    told("model", OTHER)


def delete(made: Installation, told: Told) -> None:
    """Delete the model."""
    deleted = answered(lambda: made.caller.operator("DELETE", f"/v1/models/{MODEL}"), 200)
    told("deleted", deleted.json()["log_index"])


def key(made: Installation, told: Told) -> None:
    """Register a key, and revoke it."""
    body = {
        "keyid": "another",
        "algorithm": "ed25519",
        "public_key": public_pem(_fixed_key()),
        "role": "requester",
    }
    registered = answered(
        lambda: made.caller.operator("POST", "/v1/keys", json=body), 200, 201, 409
    )
    if registered.status_code != 409:  # it was registered, and revoked, before the fault
        told("key", "another")
    answered(lambda: made.caller.operator("DELETE", "/v1/keys/another"), 200)
    told("revoked", "another")


def feeder(made: Installation) -> Caller:
    """Return who contributes: a client's key, which `registered` registers."""
    return Caller(made.caller.http, made.caller.token, "feeder", _fixed_key())


def registered(made: Installation) -> None:
    """Register the key of a client."""
    assert feeder(made).register_key(role="client", client=CLIENT).status_code == 201


def contribute(made: Installation, told: Told) -> None:
    """Contribute new rows to the model."""
    more = rows(seed=1, count=NEW, first=ROWS)
    more["clients"] = np.array([CLIENT] * NEW)
    path, once = f"/v1/models/{MODEL}/contributions", {"idempotency-key": "more"}

    def call() -> Response:
        return feeder(made).signed(
            "POST", path, pack(more), content_type="application/x-npz", headers=once
        )

    told("contribution", answered(call, 202).json()["id"])


def _fixed_key() -> PrivateKey:
    """Return the same key each time: a client that sends again sends the same."""
    return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
