"""A registered small network, and what a test wants to know of it."""

import base64
import json
from typing import Any

import numpy as np
import torch
from sqlmodel import Session, col, select

from app.certificates.statement import Statement, parse_statement
from models import Certificate, ErasureRequest, Job, Model, ModelVersion, RequestEvent
from tests import small_network
from tests.installation import Installation
from tests.small import pack
from workers.fedavg.base import ClientData
from workers.fedavg.config import LocalConfig, TrainingConfig
from workers.fedavg.held_out import is_held_out
from workers.fedavg.in_process import InProcess
from workers.fedavg.rounds import sizes, train
from workers.networks.files import encode_weights
from workers.networks.registry import network


def register(
    installation: Installation, rows: dict[str, Any] | None = None, **changes: Any
) -> None:
    """Register the small network and train it."""
    caller = installation.caller
    assert caller.register_key().status_code == 201
    answer = caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(rows or small_network.rows()))},
        data={"manifest": json.dumps(small_network.manifest(**changes))},
    )
    assert answer.status_code == 201, answer.text
    installation.drain()
    assert model(installation).state == "ready", model(installation).failure


def submit(installation: Installation, scope: dict[str, Any], **fields: Any) -> str:
    """Submit a request for the small network; return its id."""
    answer = installation.caller.erase(scope, fields={"model": small_network.MODEL, **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def erase(installation: Installation, scope: dict[str, Any], **fields: Any) -> str:
    """Submit a request and run all queued work; return its id."""
    request_id = submit(installation, scope, **fields)
    installation.drain()
    return request_id


def whole(client: str) -> dict[str, Any]:
    """Return the scope of a client."""
    return {"level": "client", "client": client}


def some(*records: str) -> dict[str, Any]:
    """Return the scope of some records."""
    return {"level": "sample", "records": list(records)}


def model(installation: Installation) -> Model:
    """Return the only model."""
    with Session(installation.services.engine) as session:
        return session.exec(select(Model)).one()


def request(installation: Installation, request_id: str) -> ErasureRequest:
    """Return a request's row."""
    with Session(installation.services.engine) as session:
        return session.get_one(ErasureRequest, request_id)


def jobs(installation: Installation) -> list[Job]:
    """Return all jobs in order."""
    with Session(installation.services.engine) as session:
        return list(session.exec(select(Job).order_by(col(Job.seq))))


def versions(installation: Installation) -> list[ModelVersion]:
    """Return all versions in order."""
    with Session(installation.services.engine) as session:
        return list(session.exec(select(ModelVersion).order_by(col(ModelVersion.number))))


def events(installation: Installation, request_id: str) -> list[str]:
    """Return a request's events in order, without their prefix."""
    with Session(installation.services.engine) as session:
        query = select(RequestEvent.event).where(RequestEvent.request_id == request_id)
        found = session.exec(query.order_by(col(RequestEvent.log_index)))
        return [event.removeprefix("request.") for event in found]


def statement(installation: Installation, request_id: str) -> Statement:
    """Return what a request's certificate says."""
    with Session(installation.services.engine) as session:
        envelope = session.get_one(Certificate, request_id).envelope
    return parse_statement(base64.b64decode(envelope["payload"]))


def published(installation: Installation) -> bytes:
    """Return the current model file."""
    number = model(installation).current_version
    path = f"/v1/models/{small_network.MODEL}/versions/{number}/artifact"
    answer = installation.caller.operator("GET", path)
    assert answer.status_code == 200
    return answer.content


def retrained(rows: dict[str, Any], gone: set[str]) -> bytes:
    """Train as registered on the arrays themselves, sharing nothing with the service."""
    registered = small_network.manifest()
    training = registered["training"]
    config = TrainingConfig(**{**training, "local": LocalConfig(**training["local"])})
    clients = {}
    for client in np.unique(rows["clients"]):
        keep = [
            place
            for place, (owner, record) in enumerate(
                zip(rows["clients"], rows["records"], strict=True)
            )
            if owner == client
            and record not in gone
            and not is_held_out(config.seed, registered["held_out"], str(record))
        ]
        if keep:
            clients[str(client)] = ClientData(
                torch.from_numpy(rows["inputs"][keep]), torch.from_numpy(rows["labels"][keep])
            )
    named = network("logistic", small_network.SHAPE)
    trained = train(named, sizes(clients), config, InProcess(clients, threads=1))
    return encode_weights(named.id, named.parameters, trained.weights)
