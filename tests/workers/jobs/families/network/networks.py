"""A registered small network, and helpers to inspect it."""

import base64
import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import torch
from sqlmodel import Session, col, select

from lethe.certificates.statement import Statement, parse_statement
from lethe.held_out import is_held_out
from models import Certificate, ErasureRequest, Job, Model, ModelVersion, RequestEvent
from tests import small_network
from tests.installation import Installation
from tests.small import pack
from workers.methods.network.base import Unlearned, UnlearningCase, UnlearningRequest
from workers.methods.network.local_case import local_case
from workers.methods.network.registry import make
from workers.methods.network.validation import held_out
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.registry import network
from workers.training.networks.weights import decode_weights, encode_weights


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
    """Return the statement of a request's certificate."""
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


def federated(
    rows: dict[str, Any], gone: set[str]
) -> tuple[TrainingConfig, dict[str, ClientData], list[int]]:
    """Return the registered training, its rows by client, and the indices of unseen rows."""
    registered = small_network.manifest()
    training = registered["training"]
    config = TrainingConfig(**{**training, "local": LocalConfig(**training["local"])})
    places: dict[str, list[int]] = {}
    held: list[int] = []
    for place, (owner, record) in enumerate(zip(rows["clients"], rows["records"], strict=True)):
        if record in gone:
            continue
        if is_held_out(config.seed, registered["held_out"], str(record)):
            held.append(place)
        else:
            places.setdefault(str(owner), []).append(place)
    inputs, labels = torch.from_numpy(rows["inputs"]), torch.from_numpy(rows["labels"])
    clients = {
        owner: ClientData(inputs[own], labels[own]) for owner, own in sorted(places.items())
    }
    return config, clients, held


def retrained(rows: dict[str, Any], gone: set[str], rounds: int | None = None) -> bytes:
    """Train as registered on the arrays themselves, sharing nothing with the service."""
    config, clients, _ = federated(rows, gone)
    if rounds is not None:
        config = replace(config, rounds=rounds)
    named = network("logistic", small_network.SHAPE)
    trained = train(named, sizes(clients), config, InProcess(clients, threads=1))
    return encode_weights(named.id, named.parameters, trained.weights)


def heads_in_process(method: str, client: str) -> list[str]:
    """Return the digests of the versions of registration and erasure in one process.

    The method itself is run on the arrays; the following retraining is the service's.
    """
    rows = small_network.rows()
    gone = set(rows["records"][rows["clients"] == client].tolist())
    first, last = retrained(rows, set()), retrained(rows, gone)
    heads = [first, last]
    if method != "retrain":
        heads.insert(1, forgotten(rows, first, method, client))
    return [sha256(head).hexdigest() for head in heads]


def forgotten(rows: dict[str, Any], file: bytes, method: str, client: str) -> bytes:
    """Run a method on the arrays themselves, sharing nothing with the service."""
    registered = small_network.manifest()
    case = case_of(rows, file, client)
    return encode(case, make(method, registered["settings"].get(method)).run(case))


def case_of(rows: dict[str, Any], file: bytes, client: str) -> UnlearningCase:
    """Return a method's input when a client leaves a model file."""
    config, clients, held = federated(rows, set())
    named, weights = decode_weights(file)
    stays = torch.tensor([place for place in held if rows["clients"][place] != client])
    unseen = ClientData(
        torch.from_numpy(rows["inputs"])[stays], torch.from_numpy(rows["labels"])[stays]
    )
    return local_case(
        named,
        weights,
        UnlearningRequest(frozenset({client})),
        config,
        clients,
        threads=1,
        validation=held_out(named, unseen, threads=1),
    )


def encode(case: UnlearningCase, found: Unlearned) -> bytes:
    """Return the model file of a method's result on a case."""
    return encode_weights(case.network.id, case.network.parameters, found.weights)
