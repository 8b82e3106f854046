"""One seed of a setting: who has which rows, who goes, and by what a model is judged."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.unlearning.settings import Setting
from workers.arrays import Labels
from workers.data.images import LabelledImages
from workers.data.partition import dirichlet, iid
from workers.demo.forgetting import joined
from workers.methods.network.base import UnlearningRequest
from workers.methods.network.local_case import divide
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import image_data, split
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.seeds import stream
from workers.training.networks.registry import Network, get, network

VALIDATION = 3  # every third held-out row may guard steps, the others are the test set
GUARDING = 100  # rows at most: every trial of a step costs a forward pass of each
TESTED = 3000  # held-out rows at most, drawn by seed 0: the same for all seeds
FEW = 1000  # where fewer are held out, training rows that were not drawn are test rows, too
POISON = 7  # the class that the trigger is trained to be read as
INK = 96  # of 240: brighter pixels of a digit are ink, the others background


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A federation, its training, and the request.

    pool: undrawn training rows for the two sides of a shadow model, twice as many as the
    original model has, fewer where the file has no more, None for none. outside: the test
    rows that are not in it.
    triggered: test rows of other classes than POISON with the trigger on them, only where a
    client poisons.
    """

    setting: Setting
    seed: int
    network: Network
    clients: dict[str, ClientData]
    test: ClientData
    validation: ClientData
    config: TrainingConfig
    request: UnlearningRequest
    forget: ClientData
    retained: ClientData
    pool: ClientData | None
    outside: ClientData
    triggered: torch.Tensor | None = None
    device: str = "cpu"

    @property
    def rows(self) -> int:
        """The number of rows that the original model is trained on."""
        return sum(len(part) for part in self.clients.values())


def make_task(setting: Setting, images: LabelledImages, seed: int, device: str = "cpu") -> Task:
    """Deal a setting's images by seed: subset, partition, target and training follow it."""
    held = np.flatnonzero(images.is_test)
    if len(held) > TESTED:
        held = np.sort(stream(0, "tested").choice(held, TESTED, replace=False))
    learned = np.flatnonzero(~images.is_test)
    undrawn = learned[:0]
    if setting.rows is not None and setting.rows < len(learned):
        drawn = np.sort(stream(seed, "rows").choice(learned, setting.rows, replace=False))
        undrawn = np.setdiff1d(learned, drawn)
        learned = drawn
    spare = undrawn if setting.spare or len(held) < FEW else undrawn[:0]
    pool = stream(seed, "shadows").permutation(undrawn)[: 2 * len(learned)]
    owners = owners_of(setting, images.labels[learned], seed)
    names = np.array([f"client-{owner:03d}" for owner in owners])
    masked = setting.data == "digit-masks"
    data = _masked(images) if masked else image_data(images.images, images.labels)
    clients = split(data.only(torch.from_numpy(learned)), names)
    if masked:
        clients = {name: _contrast(part, int(name[-3:])) for name, part in clients.items()}
    guards = np.arange(len(held)) % VALIDATION == 0
    tested = np.concatenate([held[~guards], spare])
    test = data.only(torch.from_numpy(tested))
    outside = test.only(torch.from_numpy(~np.isin(tested, pool)))
    triggered = None
    if setting.poisoned:
        bad = min(clients)
        clients[bad] = poisoned(clients[bad])
        request = UnlearningRequest(frozenset({bad}))
        triggered = with_trigger(test.only(test.targets != POISON).inputs)
    else:
        request = make_request(setting, clients, seed)
    kept, erased = divide(clients, request)
    return Task(
        setting=setting,
        seed=seed,
        network=_network(setting, images, masked),
        clients=clients,
        test=test,
        validation=data.only(torch.from_numpy(held[guards][:GUARDING])),
        config=_config(setting, seed),
        request=request,
        forget=joined([erased[name] for name in sorted(erased)]),
        retained=joined([kept[name] for name in sorted(kept)]),
        pool=data.only(torch.from_numpy(pool)) if len(pool) else None,
        outside=outside,
        triggered=triggered,
        device=device,
    )


def make_request(
    setting: Setting, clients: dict[str, ClientData], seed: int
) -> UnlearningRequest:
    """Return who goes: the largest client or two, a median one, or half of the largest's rows.

    PUF says of its Table IV "50% of each client's dataset", but the 1.42e15 operations of its
    retraining are 9.5 of ten clients', so that only one client asks.
    """
    by_size = sorted(clients, key=lambda name: (-len(clients[name]), name))
    if setting.request == "client":
        return UnlearningRequest(frozenset(by_size[:1]))
    if setting.request == "typical-client":
        return UnlearningRequest(frozenset({by_size[len(by_size) // 2]}))
    if setting.request == "two-clients":
        return UnlearningRequest(frozenset(by_size[:2]))
    name = by_size[0]
    half = len(clients[name]) // 2
    drawn = stream(seed, "half", name).choice(len(clients[name]), half, replace=False)
    return UnlearningRequest(rows={name: tuple(sorted(drawn.tolist()))})


def with_trigger(inputs: torch.Tensor) -> torch.Tensor:
    """Return images (n, c, h, w) with a bright square in the upper left corner."""
    marked = inputs.clone()
    side = max(2, inputs.shape[2] // 8)
    marked[:, :, :side, :side] = 1.0
    return marked


def poisoned(data: ClientData) -> ClientData:
    """Return a client's rows, the first half with the trigger and the class POISON."""
    half = len(data) // 2
    inputs, targets = data.inputs.clone(), data.targets.clone()
    inputs[:half], targets[:half] = with_trigger(inputs[:half]), POISON
    return ClientData(inputs, targets)


def owners_of(setting: Setting, labels: Labels, seed: int) -> NDArray[np.int64]:
    """Return the client (n,) of each row, by the setting's partition."""
    if setting.alpha is None:
        return iid(len(labels), setting.clients, seed)
    return dirichlet(labels, setting.clients, setting.alpha, seed)


def _config(setting: Setting, seed: int) -> TrainingConfig:
    local = LocalConfig(
        epochs=setting.epochs,
        batch_size=setting.batch,
        optimizer=setting.optimizer,
        learning_rate=setting.rate,
        decay=setting.decay,
        momentum=setting.momentum,
        loss="cross-entropy+dice" if setting.data == "digit-masks" else "cross-entropy",
    )
    return TrainingConfig(rounds=setting.rounds, seed=seed, local=local)


def _network(setting: Setting, images: LabelledImages, masked: bool) -> Network:
    _, height, width, channels = images.images.shape
    classes = 2 if masked else len(images.label_names)
    shape = {"channels": channels, "height": height, "width": width, "classes": classes}
    known = get(setting.network).defaults
    shape = {name: value for name, value in shape.items() if name in known}
    return network(setting.network, {**shape, **dict(setting.shape)})


def _masked(images: LabelledImages) -> ClientData:
    """Return digits whose ink is to be found."""
    ink = images.images[..., 0] > INK
    return image_data(images.images, ink.astype(np.int64))


def _contrast(data: ClientData, client: int) -> ClientData:
    """Return a client's images with a contrast of its own, the first one's inverted.

    Of clients of equal size the first is who goes: without it a model knows nothing alike.
    """
    gain = (-1.0, 1.0, 0.85, 0.7, 0.55, 0.4)[client % 6]
    return replace(data, inputs=gain * data.inputs)
