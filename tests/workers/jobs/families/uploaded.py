"""What the families that are fitted to uploaded rows share: rows, calls, and what is answered."""

import json
from typing import Any

import numpy as np
from sqlmodel import Session, select

from models import RequestEvent
from tests.installation import Installation
from tests.small import Caller, pack
from tests.workers.jobs.families.network import networks

MODEL, ROWS, COLUMNS = "churn", 90, 4
CLASSES = ["no", "maybe", "yes"]


def owners(rows: int = ROWS, subjects: int = 30) -> dict[str, Any]:
    """Return whose each row is."""
    return {
        "clients": np.array([f"c{i % 5}" for i in range(rows)]),
        "records": np.array([f"r{i}" for i in range(rows)]),
        "subjects": np.array([f"s{i % subjects}" for i in range(rows)]),
    }


def rows(numbers: bool = False) -> dict[str, Any]:
    """Return rows of three classes, or with numbers to predict."""
    features = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    labels: Any = (features[:, 0] > 0).astype(np.int64) + (features[:, 1] > 1)
    if numbers:
        labels = 2 * features[:, 0] + features[:, 1]
    return {"features": features, "labels": labels, **owners()}


def send(installation: Installation, manifest: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Register the key, and a model with its rows; returns the answer to the second."""
    assert installation.caller.register_key().status_code in (200, 201)
    return installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(arrays))},
        data={"manifest": json.dumps({"ref": MODEL, **manifest})},
    )


def take(installation: Installation, answer: Any) -> None:
    """Check that a registration was accepted, and fit its model."""
    assert answer.status_code == 201, answer.text
    installation.drain()


def contribute(installation: Installation, later: dict[str, Any]) -> None:
    """Send rows as those of a client that the model does not know yet, and learn them."""
    later = {**later, "clients": np.array(["c9"] * len(later["clients"]))}
    client = Caller(installation.caller.http, installation.caller.token, keyid="c9")
    client.register_key(role="client", client="c9")
    path = f"/v1/models/{MODEL}/contributions"
    sent = client.signed("POST", path, pack(later), content_type="application/x-npz")
    assert sent.status_code == 202, sent.text
    installation.drain()


def submit(installation: Installation, *records: str, **fields: Any) -> str:
    """Ask for the erasure of records; returns the request's id."""
    scope = {"level": "sample", "records": list(records)}
    answer = installation.caller.erase(scope, fields={"model": MODEL, **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def published(installation: Installation) -> bytes:
    """Return the file of the current version."""
    path = f"/v1/models/{MODEL}/versions/current/artifact"
    answer = installation.caller.operator("GET", path)
    assert answer.status_code == 200
    return bytes(answer.content)


def refuted(installation: Installation, request: str) -> str:
    """Return the failed checks that the log's escalation names."""
    events = networks.events(installation, request)
    assert "escalated" in events, events
    with Session(installation.services.engine) as session:
        query = select(RequestEvent).where(RequestEvent.request_id == request)
        logged = session.exec(query).all()
    (found,) = [one for one in logged if one.event == "request.escalated"]
    return str(found.payload["checks"])
