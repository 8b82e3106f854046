"""The configuration of clients and server in a round: checked, with one JSON form."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Literal

from workers.errors import RefusedError

Loss = Literal["cross-entropy", "cross-entropy+dice"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """A client's training: `epochs` passes of minibatch steps, each pass in a fresh order.

    epochs may be fractional: 0.5 is the first half of a pass, never less than one step. In
    round t = 1, 2, … the rate is learning_rate · decay^(t-1); PUF: 0.1 · 0.998^(t-1).
    weight_decay is added to the gradient for sgd and adam, decoupled for adamw. clip_norm
    bounds each gradient; 0: no bound. precision bfloat16 is autocast: the weights stay
    float32. Raises RefusedError for a value out of range.
    """

    epochs: float = 1.0
    batch_size: int = 32
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = 0.1
    decay: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    loss: Loss = "cross-entropy"
    augment: Literal["none", "crop-flip"] = "none"
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        _within(self, "epochs", 0, 1e4, open_below=True)
        _whole(self, "batch_size", 1, 1 << 20)
        _one_of(self, "optimizer", ("sgd", "adam", "adamw"))
        _within(self, "learning_rate", 0, 1e6)
        _within(self, "decay", 0, 1, open_below=True)
        _within(self, "momentum", 0, 1, open_above=True)
        _within(self, "weight_decay", 0, 1e6)
        _within(self, "clip_norm", 0, 1e30)
        _one_of(self, "loss", ("cross-entropy", "cross-entropy+dice"))
        _one_of(self, "augment", ("none", "crop-flip"))
        _one_of(self, "precision", ("float32", "bfloat16"))
        if self.momentum and self.optimizer != "sgd":
            raise RefusedError("momentum: only for the optimizer sgd; adam has its own")

    def rate(self, round: int) -> float:
        """Return the learning rate of round t, counted from 1."""
        return self.learning_rate * self.decay ** (round - 1)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The server's optimiser over the pseudo-gradient: FedOpt, Reddi et al., ICLR 2021.

    sgd with learning_rate 1 and momentum 0 is FedAvg. tau is the paper's degree of
    adaptivity, for adam and yogi. Raises RefusedError for a value out of range.
    """

    optimizer: Literal["sgd", "adam", "yogi"] = "sgd"
    learning_rate: float = 1.0
    momentum: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _one_of(self, "optimizer", ("sgd", "adam", "yogi"))
        _within(self, "learning_rate", 0, 1e6)
        for name in ("momentum", "beta1", "beta2"):
            _within(self, name, 0, 1, open_above=True)
        _within(self, "tau", 0, 1e6, open_below=True)


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """A whole federated training.

    Each round asks max(min_clients, round(participation · clients)) of the clients, drawn by
    (seed, round), and fails unless min_clients answer usably. An update longer than max_norm
    (Euclidean, over all weights; 0: `screen.ENORMOUS`) is dropped, as is an answer after
    `timeout` seconds (0: wait) if the engine measures time. Raises RefusedError for a value
    out of range.
    """

    rounds: int
    seed: int
    local: LocalConfig = field(default_factory=LocalConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    participation: float = 1.0
    min_clients: int = 1
    max_norm: float = 0.0
    timeout: float = 0.0

    def __post_init__(self) -> None:
        _whole(self, "rounds", 0, 1 << 20)
        _whole(self, "seed", 0, 2**63 - 1)
        _within(self, "participation", 0, 1, open_below=True)
        _whole(self, "min_clients", 1, 1 << 20)
        _within(self, "max_norm", 0, 1e30)
        _within(self, "timeout", 0, 1e7)


def to_json(config: LocalConfig | ServerConfig | TrainingConfig) -> dict[str, Any]:
    """Return a configuration as JSON; floats as hexadecimal strings: exact and canonical."""
    return {name: _plain(value) for name, value in sorted(asdict(config).items())}


def local_from_json(document: Any) -> LocalConfig:
    """Return the LocalConfig that `to_json` writes so.

    Raises RefusedError for any other document.
    """
    try:
        values: dict[str, Any] = {
            name: float.fromhex(value) if name in _LOCAL_FLOATS else value
            for name, value in document.items()
        }
        config = LocalConfig(**values)
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise RefusedError(
            "training.local: a field is unknown, missing or of another type: "
            "register the model again"
        ) from None
    if to_json(config) != document:
        raise RefusedError(
            "training.local: a field is missing or not in canonical form: register "
            "the model again"
        )
    return config


_LOCAL_FLOATS = ("epochs", "learning_rate", "decay", "momentum", "weight_decay", "clip_norm")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in sorted(value.items())}
    return value.hex() if isinstance(value, float) else value


def _within(
    config: Any,
    name: str,
    low: float,
    high: float,
    *,
    open_below: bool = False,
    open_above: bool = False,
) -> None:
    value = getattr(config, name)
    if type(value) is int:
        value = float(value)
        object.__setattr__(config, name, value)  # 1 and 1.0 are one configuration
    good = type(value) is float and low <= value <= high and value < inf
    if not good or (open_below and value == low) or (open_above and value == high):
        raise RefusedError(f"{name}: must be a number from {low} to {high}")


def _whole(config: Any, name: str, low: int, high: int) -> None:
    value = getattr(config, name)
    if type(value) is not int or not low <= value <= high:
        raise RefusedError(f"{name}: must be an integer from {low} to {high}")


def _one_of(config: Any, name: str, known: tuple[str, ...]) -> None:
    if getattr(config, name) not in known:
        raise RefusedError(f"{name}: choose one of {', '.join(known)}")
