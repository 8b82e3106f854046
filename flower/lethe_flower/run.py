"""One job over an exchange: the members, the rounds, the model file and its notes.

It writes to the directory `out`: model.safetensors, notes.json (last) and, while it runs,
`checkpoint`, from which the same job resumes after an interruption.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lethe_flower.exchange import Exchange
from lethe_flower.job import Job, Unlearning
from lethe_flower.members import Members, meet
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Side, UnlearningCase, UnlearningRequest
from workers.methods.network.registry import make
from workers.methods.network.validation import by_clients
from workers.training.fedavg.base import Answers, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.config import to_json
from workers.training.fedavg.errors import MessageError
from workers.training.fedavg.messages import decode_update, encode_task
from workers.training.fedavg.rounds import train
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, decode_weights, digest_of, encode_weights

MODEL, NOTES, CHECKPOINT = "model.safetensors", "notes.json", "checkpoint"


class FlowerEngine:
    """Sends each client's task to its node; nodes are the node ids by client.

    Bytes are counted as `InProcess` counts them: the lengths of the messages, without
    Flower's overhead. Raises RefusedError if two clients share a node, and the exchange's
    error if the SuperLink cannot be reached.
    """

    def __init__(self, exchange: Exchange, nodes: Mapping[str, int]) -> None:
        if len(set(nodes.values())) != len(nodes):
            raise RefusedError("two clients share a node: start a SuperNode for each")
        self._exchange = exchange
        self._nodes = dict(nodes)

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        """Return the clients' answers within `timeout` seconds (0: wait for all)."""
        sent: dict[int, bytes] = {}
        asked: dict[str, int] = {}
        faults: list[Fault] = []
        down = up = 0
        for task in sorted(tasks, key=lambda task: task.client):
            message = encode_task(task)
            down += len(message)
            node = self._nodes.get(task.client)
            if node is None:
                faults.append(Fault(task.client, "no-answer", "unknown here"))
                continue
            sent[node], asked[task.client] = message, node
        replies = self._exchange.ask("train", sent, timeout=timeout) if sent else {}
        updates: dict[str, ClientUpdate] = {}
        for client, node in asked.items():
            reply = replies.get(node)
            if reply is None:
                faults.append(Fault(client, "no-answer"))
            elif reply.content is None:
                faults.append(Fault(client, reply.fault or "client-error", reply.detail))
            else:
                up += len(reply.content)
                try:
                    updates[client] = decode_update(reply.content)
                except MessageError:
                    faults.append(Fault(client, "unreadable"))
        return Answers(updates, faults, down, up)


def run(job: Job, exchange: Exchange, out: Path) -> None:
    """Run a job and write its results.

    Raises RefusedError and its kinds, the message naming the remedy, and OSError; then
    there is no notes.json.
    """
    members = meet(exchange, job.clients, wait=job.wait, pinned=job.nodes)
    engine = FlowerEngine(exchange, members.nodes)
    out.mkdir(parents=True, exist_ok=True)
    (out / NOTES).unlink(missing_ok=True)
    checkpoint = out / CHECKPOINT
    resume = checkpoint.read_bytes() if checkpoint.exists() else None

    def save(data: bytes) -> None:
        _write(checkpoint, data)

    do = _train if job.unlearning is None else _unlearn
    weights, notes = do(job, members, engine, save, resume)
    file = encode_weights(job.network.id, job.network.parameters, weights)
    notes |= {
        "clients": len(members.nodes),
        "environments": [json.loads(text) for text in members.environments()],
        "sha256": digest_of(file),
        "training": to_json(job.training),
    }
    _write(out / MODEL, file)
    _write(out / NOTES, json.dumps(notes, indent=1, sort_keys=True).encode() + b"\n")
    # It holds the model of a round in which a client to be forgotten may have taken part.
    checkpoint.unlink(missing_ok=True)


Save = Callable[[bytes], None]


def _train(
    job: Job, members: Members, engine: FlowerEngine, save: Save, resume: bytes | None
) -> tuple[Weights, dict[str, Any]]:
    trained = train(
        job.network,
        members.rows(),
        job.training,
        engine,
        data=members.digest(),
        save=save,
        resume=resume,
    )
    notes = {"method": "train", "rounds": rounds(trained.records), "work": asdict(trained.work)}
    return trained.weights, notes


def rounds(records: Iterable[RoundRecord]) -> list[dict[str, Any]]:
    """Return each round without a client's name: the number asked, and the faults."""
    return [
        {
            "asked": len(record.asked),
            "faults": dict(sorted(Counter(fault.reason for fault in record.faults).items())),
            "loss": record.loss,
            "round": record.round,
        }
        for record in records
    ]


def _unlearn(
    job: Job, members: Members, engine: FlowerEngine, save: Save, resume: bytes | None
) -> tuple[Weights, dict[str, Any]]:
    assert job.unlearning is not None
    method = make(job.unlearning.method, job.unlearning.settings)
    done = method.run(
        _case(job, job.unlearning, members, engine), Hooks(save=save, resume=resume)
    )
    notes = {
        "claim": done.claim,
        "method": method.id,
        "notes": dict(sorted(done.notes.items())),
        "version": method.version,
        "work": asdict(done.work),
    }
    return done.weights, notes


def _case(
    job: Job, asked: Unlearning, members: Members, engine: FlowerEngine
) -> UnlearningCase:
    forget = asked.forget
    retained = members.rows(without=forget)
    targets = {name: rows for name, rows in members.rows().items() if name in forget}
    local, timeout = job.training.local, job.training.timeout
    return UnlearningCase(
        network=job.network,
        weights=_weights("model", asked.model, job.network),
        request=UnlearningRequest(clients=forget),
        config=job.training,
        retained=Side(engine, retained),
        # A method that needs the targets refuses without them; the others work without
        # offline ones.
        targets=Side(engine, targets) if targets.keys() == forget else None,
        start=None if asked.start is None else _weights("start", asked.start, job.network),
        data=members.digest(without=forget),
        validation=by_clients(job.network, engine, retained, local, timeout=timeout),
    )


def _weights(name: str, path: Path, network: Network) -> Weights:
    try:
        found, weights = decode_weights(path.read_bytes())
    except OSError:
        raise RefusedError(
            f"{name}: the file is missing or unreadable: check the path in the job"
        ) from None
    if found != network:
        raise RefusedError(
            f"{name}: the file holds another network than the job's network names: "
            "correct one of them"
        )
    return weights


def _write(path: Path, data: bytes) -> None:
    # Atomic: a reader of the name sees all of the bytes.
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    os.replace(part, path)
