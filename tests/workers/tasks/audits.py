"""A cheap audit of the small network, and what a test wants to know of it."""

from typing import Any

import numpy as np
from sqlmodel import Session, col, select

from app.ledger.entries import parse_leaf
from models import Audit, AuditPair, LogEntry
from tests import small_network
from tests.installation import Installation
from tests.workers.tasks import networks

FEATURES = 32  # more than rows of a pair: what is learned is learned by heart
CHEAP = {"batch_size": 32, "epochs": 6, "learning_rate": 0.5}
ASKED = {"pairs": 16, "rows": 12, "targets": 3, "seed": 5}


def register(installation: Installation) -> None:
    """Register a small network that trains in no time and learns by heart."""
    rng = np.random.default_rng(3)
    rows = small_network.rows(count=60)
    rows["inputs"] = rng.normal(size=(60, FEATURES)).astype(np.float32)
    rows["clients"] = np.array([f"c{i % 2}" for i in range(60)])
    networks.register(
        installation,
        rows,
        network={"id": "logistic", "parameters": {**small_network.SHAPE, "features": FEATURES}},
        input_shape=[FEATURES],
        training={"rounds": 1, "seed": 7, "local": CHEAP},
    )


def start(installation: Installation, **changes: Any) -> str:
    """Start an audit; return its id. Nothing has run yet."""
    wanted = {"model": small_network.MODEL, **ASKED, **changes}
    answer = installation.caller.operator("POST", "/v1/audits", json=wanted)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/audits/{answer.json()['id']}"
    return str(answer.json()["id"])


def get(installation: Installation, audit_id: str) -> dict[str, Any]:
    """Return an audit as the API shows it."""
    answer = installation.caller.operator("GET", f"/v1/audits/{audit_id}")
    assert answer.status_code == 200
    return dict(answer.json())


def file(installation: Installation, audit_id: str, part: str) -> bytes:
    """Return an audit's report or statistics."""
    answer = installation.caller.operator("GET", f"/v1/audits/{audit_id}/{part}")
    assert answer.status_code == 200, answer.text
    return answer.content


def numbers(installation: Installation, audit_id: str) -> list[tuple[str | None, ...]]:
    """Return what is recorded of each pair."""
    with Session(installation.services.engine) as session:
        query = select(AuditPair).where(AuditPair.audit_id == audit_id)
        rows = session.exec(query.order_by(col(AuditPair.pair))).all()
    return [(row.before, row.after, row.retrained) for row in rows]


def row(installation: Installation, audit_id: str) -> Audit:
    """Return an audit's row."""
    with Session(installation.services.engine) as session:
        return session.get_one(Audit, audit_id)


def logged(installation: Installation) -> list[tuple[str, dict[str, str]]]:
    """Return the log's entries about audits: event and digests."""
    with Session(installation.services.engine) as session:
        entries = session.exec(select(LogEntry).order_by(col(LogEntry.index))).all()
    leaves = [parse_leaf(bytes(entry.leaf)) for entry in entries]
    return [
        (leaf.event, dict(leaf.digests))
        for leaf in leaves
        if leaf.event is not None and leaf.event.startswith("audit.")
    ]
