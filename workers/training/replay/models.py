"""Models that a judge trains itself, as registered: a claimed training, and reference models.

A training is repeated round by round: equal bits, or a different training. Reference models,
for attacks and distances, have seen erased or held-out rows, so they exist only while a verdict
is reached and are never written, not even between two rounds.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from workers.errors import ArtifactError
from workers.training.fedavg.base import Answers, ClientData, Fault, RoundTask, check_data
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.evaluate import logits_of
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import complete, sizes, train
from workers.training.fedavg.server import ServerState
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    decode_weights,
    digest_of,
    encode_weights,
    initial_weights,
)

Scores = NDArray[np.float64]
Scorer = Callable[[ClientData], Scores]


def scorer(file: bytes, network: Network) -> Scorer:
    """Return a function from rows to a model file's logits (n, classes) float64.

    It raises RefusedError for rows that are not the network's. Raises ArtifactError if the
    file is not a finite model of this network.
    """
    named, weights = decode_weights(file)
    if named != network:
        raise ArtifactError(
            "the model file is of another network or other parameters than "
            "registered: fetch it again"
        )

    def scores(data: ClientData) -> Scores:
        check_data(network, data)
        logits = logits_of(named, weights, data.inputs, threads=1)
        found: Scores = logits.double().numpy()
        return found

    return scores


Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """One client's scored rows, and their positions (n,) among those of all clients."""

    data: ClientData
    places: Places


def train_file(
    network: Network,
    clients: Mapping[str, ClientData],
    config: TrainingConfig,
    device: torch.device | str = "cpu",
) -> tuple[bytes, int]:
    """Return the file of a model trained in this process, and its operations.

    Without clients it returns the initial weights. Raises what `fedavg.rounds.train` and
    `complete` do.
    """
    named = network.id, network.parameters
    if not clients:
        return encode_weights(*named, initial_weights(network, config.seed)), 0
    engine = InProcess(clients, device, threads=1)
    done = complete(train(network, sizes(clients), replace(config, timeout=0.0), engine))
    return encode_weights(*named, done.weights), done.work.flops


def reference_clients(
    retained: Mapping[str, ClientData],
    tested: Mapping[str, ScoredRows],
    included: NDArray[np.bool_],
) -> dict[str, ClientData]:
    """Return one reference model's training rows: all retained rows and some tested ones.

    included (n,): a mask over all clients' tested rows. A client's tested rows come last.
    """
    found: dict[str, ClientData] = {}
    for client in sorted({*retained, *tested}):
        parts = [retained[client]] if client in retained else []
        if client in tested:
            own = tested[client]
            mask = included[own.places]
            parts += [own.data.only(torch.from_numpy(mask))] if mask.any() else []
        if parts:
            found[client] = ClientData.joined(parts)
    return found


def answers(file: bytes, network: Network, tested: Mapping[str, ScoredRows]) -> Scores:
    """Return the logits (n, classes) float64 of a model file on the tested rows of all clients.

    Each client's rows are scored separately, as for the judged models.
    """
    model = scorer(file, network)
    count = sum(len(own.places) for own in tested.values())
    found: Scores = np.zeros((count, network.classes))
    for own in tested.values():
        found[own.places] = model(own.data)
    return found


class WithoutSome:
    """An engine of a repetition: it drops the answers that were missing the first time.

    None may be missing for want of memory here: the repetition would end with another model,
    and refute an honest one.
    """

    def __init__(
        self,
        clients: Mapping[str, ClientData],
        missing: Collection[tuple[int, str]],
        device: torch.device | str = "cpu",
    ) -> None:
        self._engine = InProcess(clients, device, threads=1)
        self._missing = frozenset(missing)

    def run(self, tasks: Sequence[RoundTask], *, timeout: float = 0.0) -> Answers:
        """Return the answers, and a fault for each missing one. Raises MemoryError."""
        here = [task for task in tasks if (task.round, task.client) not in self._missing]
        answers = self._engine.run(here, timeout=timeout)
        if self._engine.out_of_memory:
            raise MemoryError("a client's rows did not fit: run a worker with more memory")
        gone = [
            Fault(task.client, "no-answer")
            for task in tasks
            if (task.round, task.client) in self._missing
        ]
        return replace(answers, faults=[*answers.faults, *gone])


def start_digest(network: Network, config: TrainingConfig) -> str:
    """Return the hex SHA-256 of the file of the weights that training begins with."""
    return _digest(network, initial_weights(network, config.seed))


def reexecute(
    network: Network,
    clients: Mapping[str, ClientData],
    config: TrainingConfig,
    missing: Collection[tuple[int, str]],
    device: torch.device | str = "cpu",
    tell: Callable[[int], None] | None = None,
) -> str:
    """Return the hex SHA-256 of the model file that the training ends with.

    clients: the retained training rows. missing: (round, client) of answers that are claimed
    to have been dropped. tell is called with the number of each finished round. Raises
    RefusedError if the training would, and MemoryError.
    """
    if not clients:
        return start_digest(network, config)  # a training on nothing ends where it began
    engine = WithoutSome(clients, missing, device)

    def after(_: ServerState, record: RoundRecord) -> bool:
        if tell is not None:
            tell(record.round)
        return False

    exact = replace(config, timeout=0.0)
    trained = train(network, sizes(clients), exact, engine, after=after)
    return _digest(network, trained.weights)


def most_missing(config: TrainingConfig, clients: int) -> int:
    """Return how many silo answers a training may lack: half of those requested.

    Choosing which answers are missing only chooses between models that never saw the erased
    rows, but a training that lacks most answers proves little.
    """
    asked = max(config.min_clients, math.floor(config.participation * clients + 0.5))
    return min(asked, clients) * config.rounds // 2


def _digest(network: Network, weights: Mapping[str, torch.Tensor]) -> str:
    return digest_of(encode_weights(network.id, network.parameters, weights))
