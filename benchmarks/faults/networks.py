"""A network on one machine, on silos, and under an audit of its method."""

import json
from contextlib import suppress
from typing import Any

from httpx2 import Response
from sqlmodel import Session, select

from benchmarks.faults.clients import answered, asked
from benchmarks.faults.workload import Told, work
from models import Audit, Model
from tests import small_network
from tests.doubles.silos import InlineSilos
from tests.installation import Installation
from tests.small import pack
from workers.families.base import client_rows
from workers.silos import keys

MODEL, ROWS, GONE = small_network.MODEL, 40, 10  # the rows that a client has
ONCE = {"rounds": 1, "seed": 7, "local": {"batch_size": 8, "learning_rate": 0.2}}
CLIENT = {"level": "client", "client": "c1"}
SILOS: dict[str, Any] = {"silos": 2, "round_timeout_seconds": 2}
AUDIT = {"model": MODEL, "pairs": 16, "rows": 8, "targets": 2, "seed": 5}  # the least


def is_ready(session: Session) -> bool:
    """Return whether the network is trained."""
    return session.exec(select(Model.state).where(Model.ref == MODEL)).first() == "ready"


def learn(made: Installation, told: Told) -> None:
    """Register a network, have it trained, and ask for the erasure of a client."""
    register(made, told)
    work(made, is_ready)
    asked(made, told, CLIENT, MODEL, method="puf-special")


def register(made: Installation, told: Told) -> None:
    """Register a network."""

    def call() -> Response:
        return made.caller.operator(
            "POST",
            "/v1/models",
            files={"data": ("rows.npz", pack(small_network.rows(count=ROWS)))},
            data={"manifest": json.dumps(small_network.manifest(training=ONCE))},
        )

    answered(call, 200, 201)
    told("model", MODEL)


def trained(made: Installation) -> None:
    """Have a network trained, whose method may be audited."""
    register(made, lambda *_: None)
    made.drain()


def trained_on_silos(made: Installation) -> None:
    """Have a network trained on the rows of two silos."""
    _begin_silos(made)
    trained(made)


def retrain_on_silos(made: Installation, told: Told) -> None:
    """Ask for the erasure of a client, which every silo helps to retrain for."""
    _begin_silos(made)
    asked(made, told, CLIENT, MODEL, method="retrain")


def _begin_silos(made: Installation) -> None:
    """Start the silos: what fails in one is no error of the worker that asked it."""
    silos = InlineSilos(client_rows)
    silos.services = made.services

    def ask(*messages: Any, **options: Any) -> None:
        with suppress(Exception):
            silos.ask(*messages, **options)

    vars(made.dispatcher).update(ask=ask)
    for silo in range(made.settings.silos):
        keys.register(made.settings, silo)


def audit(made: Installation, told: Told) -> None:
    """Start an audit of the network's method, unless one was started before the fault."""

    def call() -> Response:
        return made.caller.operator("POST", "/v1/audits", json=AUDIT)

    def known() -> list[str]:
        listed = answered(lambda: made.caller.operator("GET", "/v1/audits"), 200).json()
        return [one["id"] for one in listed["items"]]

    if not known():
        answered(call, 201, 409)  # 409: the call before it did start one
    for one in known():
        told("audit", one)


def are_reported(session: Session) -> bool:
    """Return whether there are audits, and all of them are reported."""
    return set(session.exec(select(Audit.state)).all()) == {"reported"}
