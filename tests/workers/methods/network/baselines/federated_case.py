"""A network of two layers, for the federated baselines."""

from typing import Any

from tests.workers.methods.network.small import WHOLE
from tests.workers.training.fedavg.small import ROWS, client_data
from workers.methods.network.base import UnlearningCase, UnlearningRequest
from workers.methods.network.local_case import local_case
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.networks.registry import network
from workers.training.networks.weights import initial_weights

CNN = network("simple-cnn", {"channels": 1, "height": 6, "width": 6, "classes": 3})
CNN_CONFIG = TrainingConfig(rounds=2, seed=5, local=LocalConfig(batch_size=8))


def images(rows: int, seed: int) -> ClientData:
    flat = client_data(rows, seed, features=36)
    return ClientData(flat.inputs.view(rows, 1, 6, 6), flat.targets)


CNN_CLIENTS = {name: images(rows, rows) for name, rows in ROWS.items()}


def cnn_case(request: UnlearningRequest = WHOLE, **changes: Any) -> UnlearningCase:
    weights = initial_weights(CNN, 1)
    return local_case(CNN, weights, request, CNN_CONFIG, CNN_CLIENTS, **changes)
