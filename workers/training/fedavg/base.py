"""The types of federated training: client data, a round's task and answer, an engine.

An unlearning method takes the types defined here: a Network, its Weights, an Engine that
reaches the clients, and a configuration. It asks clients through `rounds.collect`, combines
their updates with `server.weighted_mean`, and returns new weights and the work. It never sees
a client's data unless the caller hands it over: with an in-process engine that is
`InProcess.clients`, a Mapping from client id to ClientData.

An update is Δ = w_local - w_global (PUF, section III-A): the negated pseudo-gradient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

import torch

from workers.errors import RefusedError
from workers.training.fedavg.config import LocalConfig
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, check_weights, is_finite


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """One client's rows: inputs (n, *input_shape) float32, targets int64.

    targets are (n,) classes, or (n, height, width) classes of pixels. n >= 1. A row is named
    by its position. Raises RefusedError for other types or lengths, NaN or infinity.
    """

    inputs: torch.Tensor
    targets: torch.Tensor

    def __post_init__(self) -> None:
        if self.inputs.dtype != torch.float32 or self.targets.dtype != torch.int64:
            raise RefusedError("inputs must be float32 and targets int64")
        if self.inputs.ndim < 2 or self.targets.ndim not in (1, 3):
            raise RefusedError("inputs must be (n, ...), targets (n,) or (n, height, width)")
        if len(self.inputs) == 0 or len(self.inputs) != len(self.targets):
            raise RefusedError("there must be exactly one target for each input, at least one")
        if not is_finite(self.inputs):
            raise RefusedError("an input holds NaN or infinity: repair the rows")

    def __len__(self) -> int:
        return len(self.inputs)

    def only(self, rows: torch.Tensor) -> "ClientData":
        """Return the rows at these positions (m,) int64, or where a mask (n,) is true.

        Raises RefusedError if there are none: a client without rows is left out instead.
        """
        return ClientData(self.inputs[rows], self.targets[rows])

    @staticmethod
    def joined(parts: Sequence["ClientData"]) -> "ClientData":
        """Return the rows of several parts, in their order. Raises RuntimeError for none."""
        return ClientData(
            torch.cat([part.inputs for part in parts]),
            torch.cat([part.targets for part in parts]),
        )


Clients = Mapping[str, ClientData]


def check_data(network: Network, data: ClientData) -> None:
    """Raise RefusedError unless the network can be trained on the data."""
    if tuple(data.inputs.shape[1:]) != network.input_shape:
        raise RefusedError(f"inputs: each must have the network's shape {network.input_shape}")
    pixels = network.input_shape[1:] if network.task == "segmentation" else ()
    if tuple(data.targets.shape[1:]) != pixels:
        raise RefusedError(
            "targets: must be one class for each row, or for each pixel if the "
            "network learns masks"
        )
    if int(data.targets.min()) < 0 or int(data.targets.max()) >= network.classes:
        raise RefusedError(
            f"targets: must lie between 0 and {network.classes - 1}, the network's classes"
        )


Operation = Literal["train", "evaluate", "gradient", "hessian", "gauss-newton"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
PRODUCTS: tuple[Operation, ...] = ("hessian", "gauss-newton")


@dataclass(frozen=True, slots=True, eq=False)
class RoundTask:
    """A request to a client at `weights`: train as configured, or evaluate the loss.

    base is the SHA-256 of the weights' file: an answer names what it was computed from.
    "evaluate" returns the client's mean loss and changes nothing; "gradient" returns that
    loss's gradient, "hessian" and "gauss-newton" the product of its matrix with `vector`,
    which only these two have. These four use only loss and batch_size of the config. A
    product may be the mean over a share of the rows, drawn by the seed: equal seeds, equal
    rows. Raises RefusedError for a vector or a share that the operation does not take.
    """

    network: Network
    round: int  # from 1: it sets the learning rate
    client: str
    weights: Weights
    base: str
    config: LocalConfig
    seed: int  # of the order of the rows, or of which of them a product takes
    operation: Operation = "train"
    vector: Weights | None = None
    share: float = 1.0  # of the client's rows

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise RefusedError("the task names an unknown operation")
        if (self.vector is not None) != (self.operation in PRODUCTS):
            raise RefusedError("products need a vector, and nothing else has one")
        if type(self.share) is not float or not 0 < self.share <= 1:
            raise RefusedError("share: must be a fraction of the rows, above 0 and at most 1")
        if self.share != 1 and self.operation not in (*PRODUCTS, "evaluate"):
            raise RefusedError("only products and losses can be asked of a share of the rows")
        if self.vector is not None:
            check_weights(self.network, self.vector)


@dataclass(frozen=True, slots=True, eq=False)
class ClientUpdate:
    """A client's answer. Nothing in it is trusted before `screen.screen` has checked it.

    delta is w_local - w_global, or another operation's result, empty for "evaluate". loss is
    the mean over the rows during training, or over the rows that another operation used;
    correct, from "evaluate" alone, the number of rows (of pixels, for masks) whose largest
    logit is the target. flops are counted from the operators, forward and backward; seconds
    are the client's own.
    """

    round: int
    client: str
    base: str
    delta: Weights
    samples: int  # rows the client holds, n_i
    steps: int  # gradients and products taken, none to evaluate
    loss: float
    flops: int
    seconds: float
    correct: int | None = None


Reason = Literal[
    "no-answer",  # nothing came back in time, or the client is gone
    "client-error",  # it said that it failed
    "unreadable",  # bytes that are no message
    "unsigned",  # not signed by the silo's key, or to another task
    "mismatch",  # another round, client, base, number of rows or kind of answer than asked
    "shape",  # other tensors than requested
    "not-finite",  # NaN or infinity in the update or its loss
    "norm",  # longer than the configured bound, or enormous
]


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why a client's answer does not count in this round."""

    client: str
    reason: Reason
    detail: str = ""  # never data: the name of an error, a norm


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """An engine's answers by client: an update or a fault for each client asked.

    bytes_down and bytes_up are the lengths of the messages as they were sent.
    """

    updates: Mapping[str, ClientUpdate]
    faults: Sequence[Fault]
    bytes_down: int
    bytes_up: int


class Engine(Protocol):
    """Carries round tasks to clients and their answers back, and judges neither."""

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        """Return what the clients answered within `timeout` seconds (0: wait for all).

        A client that fails or stays silent is a Fault. Raises only if no client can be
        reached at all. The answer to a task must not depend on the others, nor on order.
        """


@dataclass(frozen=True, slots=True)
class Work:
    """The cost of an operation. Costs add up with +."""

    rounds: int = 0
    steps: int = 0  # gradient steps over all clients
    flops: int = 0  # counted from the operators that ran
    bytes_down: int = 0  # server to clients
    bytes_up: int = 0
    seconds: float = field(default=0.0, compare=False)  # equal runs differ in it

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.rounds + other.rounds,
            self.steps + other.steps,
            self.flops + other.flops,
            self.bytes_down + other.bytes_down,
            self.bytes_up + other.bytes_up,
            self.seconds + other.seconds,
        )


def cost_notes(work: Work) -> dict[str, str]:
    """Return a certificate's notes on a run's cost: counts exactly, seconds to a tenth."""
    return {
        "cost.rounds": str(work.rounds),
        "cost.steps": str(work.steps),
        "cost.flops": str(work.flops),
        "cost.bytes-down": str(work.bytes_down),
        "cost.bytes-up": str(work.bytes_up),
        "cost.seconds": f"{work.seconds:.1f}",
    }
