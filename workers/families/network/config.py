"""A deep model's registration, parsed for the training and the methods."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from lethe import canonical
from lethe.held_out import is_held_out
from models import Model
from workers.errors import ArtifactError, RefusedError
from workers.judge.policy.document import from_document
from workers.judge.policy.policy import Policy
from workers.methods.network import registry
from workers.methods.network.base import UnlearningMethod
from workers.training.fedavg.config import LocalConfig, ServerConfig, TrainingConfig
from workers.training.networks.registry import Network, network
from workers.training.replay.canary import Canary, read_canary


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """The network, its training, and which share of the records is never trained on."""

    network: Network
    training: TrainingConfig
    held_out: float
    canary: Canary | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def is_held_out(self, record: str) -> bool:
        """Return whether a record is never trained on: a function of its id alone."""
        return is_held_out(self.training.seed, self.held_out, record)

    def training_of(self, clients: Collection[str]) -> TrainingConfig:
        """Return the training for these clients: below the minimum, all must answer."""
        least = min(self.training.min_clients, max(1, len(clients)))
        return replace(self.training, min_clients=least)

    def method(
        self, method_id: str, differing: Mapping[str, Any] = MappingProxyType({})
    ) -> UnlearningMethod:
        """Return a method with the registered settings, except for those in `differing`.

        Settings that are objects, such as guard, are merged by member.

        Raises RefusedError if there is no such method, or a setting is not one of its own.
        """
        settings = dict(self.settings.get(method_id, {}))
        for name, value in differing.items():
            inner = settings.get(name)
            nested = isinstance(value, Mapping) and isinstance(inner, Mapping)
            settings[name] = {**(inner or {}), **value} if nested else value
        return registry.make(method_id, settings)


def network_config(model: Model) -> NetworkConfig:
    """Return the configuration that a deep model was registered with.

    Raises RefusedError if it describes no network, or no training.
    """
    config: dict[str, Any] = model.config
    chosen = config["network"]
    named = network(chosen["id"], {**chosen["parameters"]})
    if list(named.input_shape) != config["input_shape"]:
        raise RefusedError(
            f"the network takes inputs of {list(named.input_shape)}, not the registered "
            "input_shape: register the model again"
        )
    if named.classes != len(model.classes):
        raise RefusedError(
            f"the network has {named.classes} classes, not {len(model.classes)}: name the "
            "number in its parameters"
        )
    training = dict(config["training"])
    local = LocalConfig(**training.pop("local"))
    server = ServerConfig(**training.pop("server"))
    canary = read_canary(config.get("canary"), config["input_shape"], model.classes)
    if canary is not None and named.task != "classification":
        raise RefusedError("canary: the target is the class of a row, and masks have none")
    read = NetworkConfig(
        network=named,
        training=TrainingConfig(local=local, server=server, **training),
        held_out=config["held_out"],
        canary=canary,
        settings=config["settings"],
    )
    ladder = policy_of(model).ladder
    for method_id in read.settings:
        read.method(method_id)  # unknown methods are reported now, not at the first erasure
    for attempt in ladder:
        read.method(attempt.method, attempt.settings)
    return read


def policy_of(model: Model) -> Policy:
    """Return the registered policy that the model's erasures must pass.

    Raises RefusedError if it is not a policy; the message names the field.
    """
    return from_document(model.config["policy"])


KIND = "network-state/1"


@dataclass(frozen=True, slots=True)
class TrainingState:
    """A training by its start, its rows and the dropped answers.

    start and data are hex SHA-256. missing: (round, client) of every answer that was requested
    and dropped; the names make this file personal data. exact: whether it was trained from the
    initial weights, so that repeating it gives the same bits.
    """

    start: str
    data: str
    rounds: int
    missing: tuple[tuple[int, str], ...] = ()
    exact: bool = True


def encode_state(state: TrainingState) -> bytes:
    """Return a state's canonical encoding."""
    return canonical.encode({"kind": KIND, **asdict(state)})


def decode_state(data: bytes) -> TrainingState:
    """Return the state of `encode_state`. Raises ArtifactError for any other bytes."""
    try:
        fields = canonical.decode(data)
        missing = tuple((int(round), str(client)) for round, client in fields.pop("missing"))
        if fields.pop("kind") == KIND:
            state = TrainingState(missing=missing, **fields)
            if encode_state(state) == data:
                return state
    except (canonical.NotCanonicalError, AttributeError, KeyError, TypeError, ValueError):
        pass  # reported below
    raise ArtifactError("these bytes are not a network's state: fetch it again")
