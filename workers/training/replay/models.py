"""Models that a judge trains for itself, as registered, for attacks and distances.

Those of reference have seen rows that were erased or held out, so they exist while a verdict
is reached and are written nowhere, not even between two rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import complete, sizes, train
from workers.training.networks.files import encode_weights
from workers.training.networks.registry import Network
from workers.training.networks.weights import initial_weights
from workers.training.replay.scores import Scores, scorer

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """One client's rows that are scored, and their numbers (n,) among those of all clients."""

    data: ClientData
    places: Places


def train_file(
    network: Network,
    clients: Mapping[str, ClientData],
    config: TrainingConfig,
    device: torch.device | str = "cpu",
) -> tuple[bytes, int]:
    """Return the file of a model trained in this process, and the operations that it took.

    clients may be none: then it ends where it began. Raises what `fedavg.rounds.train` and
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
    """Return what one reference model is trained on: all retained rows, and tested ones.

    included (n,): which of the tested rows of all clients. A client's come after its others.
    """
    found: dict[str, ClientData] = {}
    for client in sorted({*retained, *tested}):
        parts = [retained[client]] if client in retained else []
        if client in tested:
            own = tested[client]
            mask = included[own.places]
            parts += [own.data.only(torch.from_numpy(mask))] if mask.any() else []
        if parts:
            found[client] = joined(parts)
    return found


def answers(file: bytes, network: Network, tested: Mapping[str, ScoredRows]) -> Scores:
    """Return the logits (n, classes) float64 of a model file on the tested rows of all clients.

    A client's rows are scored with nobody else's, as those of the judged models are.
    """
    model = scorer(file, network)
    count = sum(len(own.places) for own in tested.values())
    found: Scores = np.zeros((count, network.classes))
    for own in tested.values():
        found[own.places] = model(own.data)
    return found


def joined(parts: Sequence[ClientData]) -> ClientData:
    """Return some rows, one part after the other. Raises RefusedError for none."""
    return ClientData(
        torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
    )
