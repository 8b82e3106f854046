"""A federation of images whose largest client is erased, and how well a model forgot it.

The benchmark and the demonstration measure by the same means.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import torch

from workers.data.images import LabelledImages
from workers.data.partition import dirichlet
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Tick, UnlearningCase, UnlearningRequest
from workers.methods.network.local_case import local_case
from workers.methods.network.registry import make
from workers.methods.network.validation import held_out
from workers.training.fedavg.base import ClientData, Work
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.client.data import image_data, split
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.fedavg.server import ServerState
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import Weights

CLIENTS = 10
VALIDATION = 3  # every third held-out row limits steps, the others are the test set
# With a strong skew the erased client holds most of some classes: there is something to forget.
ALPHA = 0.1
joined = ClientData.joined


@dataclass(frozen=True, slots=True, eq=False)
class Federated:
    """A federation of images, its model's training configuration, and the client to erase."""

    network: Network
    clients: dict[str, ClientData]
    test: ClientData
    validation: ClientData
    config: TrainingConfig
    target: str

    @property
    def forget(self) -> ClientData:
        """The rows of the erased client."""
        return self.clients[self.target]

    @property
    def retained(self) -> ClientData:
        """All retained rows."""
        return joined([rows for name, rows in self.clients.items() if name != self.target])


@dataclass(frozen=True, slots=True)
class Measured:
    """One model: accuracies on test, forget and retained rows, and its cost."""

    name: str
    test: float
    forget: float
    retained: float
    work: Work | None
    note: str = ""


def federate(
    images: LabelledImages,
    config: TrainingConfig,
    *,
    seed: int = 0,
    rows: int | None = None,
) -> Federated:
    """Deal images over ten clients; the largest is erased. rows: the maximum, drawn by seed.

    Raises RefusedError if no row is held out.
    """
    data = image_data(images.images, images.labels)
    held = np.flatnonzero(images.is_test)
    if len(held) < VALIDATION:
        raise RefusedError("the data hold nothing out to test by: use a file with a test set")
    learned = np.flatnonzero(~images.is_test)
    if rows is not None and rows < len(learned):
        rng = np.random.Generator(np.random.PCG64(seed))
        learned = np.sort(rng.choice(learned, rows, replace=False))
    owners = dirichlet(images.labels[learned], CLIENTS, ALPHA, seed)
    names = np.array([f"client-{owner:02d}" for owner in owners])
    clients = split(data.only(torch.from_numpy(learned)), names)
    _, height, width, channels = images.images.shape
    shape = {"channels": channels, "height": height, "width": width}
    named = network("simple-cnn", {**shape, "classes": len(images.label_names)})
    guards = np.arange(len(held)) % VALIDATION == 0
    return Federated(
        network=named,
        clients=clients,
        test=data.only(torch.from_numpy(held[~guards])),
        validation=data.only(torch.from_numpy(held[guards])),
        config=config,
        target=max(sorted(clients), key=lambda name: len(clients[name])),
    )


def learn(
    federated: Federated, tell: Callable[[Tick], None], threads: int = 1
) -> tuple[UnlearningCase, Work]:
    """Train the original model; return the case of forgetting its target, and the work."""
    config = federated.config

    def after(_: ServerState, record: RoundRecord) -> bool:
        tell(Tick("retrain", record.round, config.rounds, record.loss))
        return False

    trained = train(
        federated.network,
        sizes(federated.clients),
        config,
        InProcess(federated.clients, threads=threads),
        after=after,
    )
    case = local_case(
        federated.network,
        trained.weights,
        UnlearningRequest(frozenset({federated.target})),
        config,
        federated.clients,
        threads=threads,
        validation=held_out(federated.network, federated.validation, threads=threads),
    )
    return case, trained.work


def measure(
    federated: Federated, name: str, weights: Weights, work: Work | None, note: str = ""
) -> Measured:
    """Return a model's accuracies on test, forget and retained rows."""
    test, forget, retained = (
        evaluate(federated.network, weights, rows, threads=1).accuracy
        for rows in (federated.test, federated.forget, federated.retained)
    )
    return Measured(name, test, forget, retained, work, note)


def unlearn(
    federated: Federated,
    case: UnlearningCase,
    method_id: str,
    settings: Mapping[str, Any] | None = None,
    tell: Callable[[Tick], None] | None = None,
    label: str = "",
) -> Measured:
    """Run one method and measure its result; a refusal becomes a line of its own."""
    label = label or method_id
    try:
        found = make(method_id, settings).run(case, Hooks(tell=tell))
    except RefusedError as error:
        return Measured(label, nan, nan, nan, None, f"refused: {error}")
    used = found.notes.get("step.used")
    note = f"step {used} of {found.notes['step.asked']} asked" if used else ""
    return measure(federated, label, found.weights, found.work, note)
