"""The job of one `flwr run`, as JSON: a training, or the unlearning of a trained model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.errors import RefusedError
from workers.training.fedavg.config import LocalConfig, ServerConfig, TrainingConfig
from workers.training.networks.registry import Network, network


@dataclass(frozen=True, slots=True)
class Unlearning:
    """A request to forget whole clients of the model in `model`, a file of an earlier run.

    start is the file of the weights from before the first round, None: the initial weights of
    the training's seed. A client that forgets some rows removes them from its own file and is
    retrained: row positions are never sent.
    """

    model: Path
    forget: frozenset[str]
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    start: Path | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """clients must be online within `wait` seconds; nodes pins node ids by client."""

    network: Network
    training: TrainingConfig
    clients: int
    wait: float = 120.0
    nodes: Mapping[str, int] | None = None
    unlearning: Unlearning | None = None


def read_job(path: Path) -> Job:
    """Return the job in a file; relative paths in it are relative to the file.

    Raises RefusedError naming the field at fault and never repeating its value.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise RefusedError("job: the file is missing or not JSON: check --run-config") from None
    fields = _fields("job", document, _JOB)
    forget = fields.get("unlearning")
    job = Job(
        _network(fields.get("network")),
        _training(fields.get("training")),
        _number("clients", fields.get("clients"), whole=True),
        _number("wait", fields.get("wait", 120.0)),
        _nodes(fields.get("nodes")),
        None if forget is None else _unlearning(forget, path.parent),
    )
    named = frozenset() if job.unlearning is None else job.unlearning.forget
    if job.nodes is not None and not named <= job.nodes.keys():
        raise RefusedError(
            "forget: names a client that is not in nodes: correct it, or add the client's node"
        )
    return job


_JOB = {"network", "training", "clients", "wait", "nodes", "unlearning"}
_UNLEARNING = {"model", "forget", "method", "settings", "start"}


def _fields(name: str, document: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(document, dict) or not document.keys() <= known:
        raise RefusedError(f"{name}: must be an object of {', '.join(sorted(known))}")
    return document


def _network(document: Any) -> Network:
    fields = _fields("network", document, {"id", "shape"})
    return network(fields.get("id", ""), fields.get("shape"))


def _training(document: Any) -> TrainingConfig:
    try:
        fields = dict(document)
        local = LocalConfig(**fields.pop("local", {}))
        server = ServerConfig(**fields.pop("server", {}))
        return TrainingConfig(**fields, local=local, server=server)
    except (TypeError, ValueError):
        raise RefusedError(
            "training: a field is unknown, or of another type than it must have"
        ) from None


def _nodes(document: Any) -> dict[str, int] | None:
    if document is None:
        return None
    if not isinstance(document, dict) or any(type(n) is not int for n in document.values()):
        raise RefusedError(
            "nodes: must be an object that gives each client's node id, an integer"
        )
    if len(set(document.values())) != len(document):
        raise RefusedError("nodes: two clients have the same node: give each its own")
    return document


def _unlearning(document: Any, directory: Path) -> Unlearning:
    fields = _fields("unlearning", document, _UNLEARNING)
    forget, settings = fields.get("forget"), fields.get("settings", {})
    if not isinstance(forget, list) or not all(isinstance(name, str) for name in forget):
        raise RefusedError("forget: must be a list of clients' names")
    if not isinstance(settings, dict):
        raise RefusedError("settings: must be an object of the method's settings")
    for name in ("model", "method"):
        if not isinstance(fields.get(name), str):
            raise RefusedError(f"{name}: must be a string")
    start = fields.get("start")
    if start is not None and not isinstance(start, str):
        raise RefusedError("start: must be the path of a model file, or left out")
    return Unlearning(
        directory / fields["model"],
        frozenset(forget),
        fields["method"],
        settings,
        None if start is None else directory / start,
    )


def _number(name: str, value: Any, *, whole: bool = False) -> Any:
    fits = type(value) is int if whole else type(value) in (int, float)
    if not fits or not (1 if whole else 0) <= value <= 1e7:
        raise RefusedError(
            f"{name}: must be a {'whole ' if whole else ''}number from "
            f"{1 if whole else 0} to 10,000,000"
        )
    return value
