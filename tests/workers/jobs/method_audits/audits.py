"""A cheap audit of the small network, and helpers to inspect it."""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from sqlmodel import Session, col, select

from lethe.certificates.audits.report import AuditPredicate, parse_report
from lethe.held_out import is_held_out
from lethe.log.entries import parse_leaf
from lethe.signing.keys import generate_key
from models import Audit, AuditPair, LogEntry
from tests import small_network
from tests.installation import Installation
from tests.small import pack
from tests.workers.jobs.families.network import networks
from workers.audit_pairs.draw import Plan, StoredRows
from workers.audit_pairs.pair import Pair, run_pair
from workers.methods.network.base import UnlearningMethod
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.networks.registry import network

FEATURES = 32  # more than rows of a pair: the model memorises what it learns
SEED = 7
CHEAP: dict[str, Any] = {"batch_size": 32, "epochs": 6, "learning_rate": 0.5}
ASKED = {"pairs": 16, "rows": 12, "targets": 3, "seed": 5}


class Quick:
    """Pairs of a retraining by (seed, pair) only; `seen`: the records each was given."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.seen: list[set[str]] = []

    def run_pair(self, *given: Any) -> Pair:
        rows, plan, number = given[3], given[4], given[5]
        self.seen.append({record for own in rows.values() for record in own.records})
        drawn = sha256(f"{plan.seed}|{number}".encode()).digest()
        return Pair(20 + drawn[0] / 256, drawn[1] / 256, drawn[1] / 256, False)


def rows() -> dict[str, Any]:
    """Return the arrays of the registration."""
    rng = np.random.default_rng(3)
    return {
        **small_network.rows(count=60),
        "inputs": rng.normal(size=(60, FEATURES)).astype(np.float32),
        "clients": np.array([f"c{i % 2}" for i in range(60)]),
    }


def register(installation: Installation) -> None:
    """Register a small network that trains quickly and memorises."""
    networks.register(
        installation,
        rows(),
        network={"id": "logistic", "parameters": {**small_network.SHAPE, "features": FEATURES}},
        input_shape=[FEATURES],
        training={"rounds": 1, "seed": SEED, "local": CHEAP},
    )


def contribute(installation: Installation, prefix: str) -> None:
    """Send ten more rows of a client, which are not learned yet."""
    arrays = {name: array[:10] for name, array in rows().items()}
    arrays["clients"] = np.full(10, "c0")
    arrays["records"] = np.array([f"{prefix}{i}" for i in range(10)])
    feeder = replace(installation.caller, keyid="feeder", key=generate_key("ed25519"))
    assert feeder.register_key(role="client", client="c0").status_code == 201
    path, kind = f"/v1/models/{small_network.MODEL}/contributions", "application/x-npz"
    answer = feeder.signed("POST", path, pack(arrays), content_type=kind)
    assert answer.status_code == 202, answer.text


def by_hand(number: int, method: UnlearningMethod) -> tuple[str, ...]:
    """Return a pair's numbers from the arrays themselves, without the service."""
    arrays, stored = rows(), {}
    for client in ("c0", "c1"):
        own = np.flatnonzero(arrays["clients"] == client)
        records = [str(record) for record in arrays["records"][own]]
        inputs, labels = (torch.from_numpy(arrays[name][own]) for name in ("inputs", "labels"))
        held = [is_held_out(SEED, 0.25, record) for record in records]
        stored[client] = StoredRows(records, ClientData(inputs, labels), held)
    shape = {**small_network.SHAPE, "features": FEATURES}
    found = run_pair(
        network("logistic", shape),
        TrainingConfig(rounds=1, seed=SEED, local=LocalConfig(**CHEAP)),
        method,
        stored,
        Plan(ASKED["seed"], ASKED["pairs"], ASKED["rows"], ASKED["targets"], mislabelled=True),
        number,
    )
    return found.before.hex(), found.after.hex(), found.retrained.hex()


def start(installation: Installation, **changes: Any) -> str:
    """Start an audit without running it; return its id."""
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
    """Return the recorded numbers of each pair."""
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


def said(installation: Installation, audit_id: str) -> AuditPredicate:
    """Return the predicate of an audit's report."""
    envelope = json.loads(file(installation, audit_id, "report"))
    return parse_report(base64.b64decode(envelope["payload"])).predicate


def all_of(installation: Installation) -> list[dict[str, Any]]:
    """Return all audits as the API lists them."""
    return list(installation.caller.operator("GET", "/v1/audits").json()["items"])


def age(installation: Installation, audit_id: str, by: timedelta) -> None:
    """Shift an audit's next start, its last nudge and the leases of its pairs into the past.

    Its own start time is kept: it is in the log.
    """
    with Session(installation.services.engine) as session:
        audit = session.get_one(Audit, audit_id)
        if audit.due_at is not None:
            audit.due_at -= by
        audit.nudged_at -= by
        query = select(AuditPair).where(
            AuditPair.audit_id == audit_id, col(AuditPair.lease_until).is_not(None)
        )
        for pair in session.exec(query):
            assert pair.lease_until is not None
            pair.lease_until -= by
        session.commit()


def cited(ready: Installation, record: str = "r0") -> dict[str, str]:
    """Erase a record, and return the audit parameters of its certificate."""
    request_id = networks.erase(ready, networks.some(record), method="retrain")
    parameters = networks.statement(ready, request_id).predicate.method.parameters
    return {name: value for name, value in parameters.items() if name[:5] == "audit"}
