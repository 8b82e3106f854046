"""The demonstration's own control of a network: accuracies, and an independent retraining."""

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from lethe.held_out import is_held_out
from workers.data.images import LabelledImages
from workers.registration.network import NetworkRegistration
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import image_data
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import decode_weights, encode_weights


@dataclass(frozen=True, slots=True)
class Accuracies:
    """A model file's accuracies: on unseen rows, and on those to be forgotten."""

    test: float
    forget: float


def accuracies(
    model: bytes, images: LabelledImages, prepared: NetworkRegistration, erased: Collection[str]
) -> Accuracies:
    """Return a model's accuracies on the data set's own test rows and on erased records."""
    named, weights = decode_weights(model)
    data = _rows(images, named)
    test = data.only(torch.from_numpy(np.flatnonzero(images.is_test)))
    rows = np.flatnonzero(~images.is_test)
    gone = np.array([record in erased for record in prepared.records])
    forget = data.only(torch.from_numpy(rows[gone]))
    return Accuracies(
        *(evaluate(named, weights, part, threads=1).accuracy for part in (test, forget))
    )


def retrained_digest(
    images: LabelledImages, prepared: NetworkRegistration, erased: Collection[str]
) -> str:
    """Return the SHA-256 of the model that the registered training gives without `erased`.

    It reads the data file, not the service: only the code of training is shared.
    """
    manifest = prepared.manifest
    wanted = manifest["network"]
    named = network(wanted["id"], wanted["parameters"])
    config = _training(manifest["training"])
    data = _rows(images, named)
    places: dict[str, list[int]] = {}
    rows = np.flatnonzero(~images.is_test).tolist()
    for row, record, client in zip(rows, prepared.records, prepared.clients, strict=True):
        held = is_held_out(config.seed, manifest["held_out"], record)
        if not held and record not in erased:
            places.setdefault(client, []).append(row)
    clients: dict[str, ClientData] = {
        client: data.only(torch.tensor(own)) for client, own in places.items()
    }
    trained = train(named, sizes(clients), config, InProcess(clients, "auto", threads=1))
    file = encode_weights(named.id, named.parameters, trained.weights)
    return sha256(file).hexdigest()


def _rows(images: LabelledImages, named: Network) -> ClientData:
    """Return all images as the network takes them: flat for a logistic head."""
    data = image_data(images.images, images.labels)
    if len(named.input_shape) > 1:
        return data
    return ClientData(data.inputs.flatten(1), data.targets)


def _training(document: dict[str, Any]) -> TrainingConfig:
    values = {**document, "local": LocalConfig(**document["local"])}
    return TrainingConfig(**values)
