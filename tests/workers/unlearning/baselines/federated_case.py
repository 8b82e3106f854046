"""Cases with history and a network of two layers, for the federated baselines."""

from dataclasses import replace
from typing import Any

from tests.workers.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS, client_data
from tests.workers.unlearning.small import WHOLE, case
from workers.fedavg.base import ClientData
from workers.fedavg.config import LocalConfig, TrainingConfig
from workers.fedavg.in_process import InProcess
from workers.fedavg.rounds import train
from workers.networks.registry import network
from workers.networks.weights import initial_weights
from workers.unlearning.base import Case, UnlearningRequest
from workers.unlearning.baselines.history import Recorder
from workers.unlearning.local_case import local_case

RECORDER = Recorder(InProcess(CLIENTS), ROWS)
train(NETWORK, ROWS, CONFIG, RECORDER)
HISTORY = tuple(RECORDER.history)

CNN = network("simple-cnn", {"channels": 1, "height": 6, "width": 6, "classes": 3})
CNN_CONFIG = TrainingConfig(rounds=2, seed=5, local=LocalConfig(batch_size=8))


def images(rows: int, seed: int) -> ClientData:
    flat = client_data(rows, seed, features=36)
    return ClientData(flat.inputs.view(rows, 1, 6, 6), flat.targets)


CNN_CLIENTS = {name: images(rows, rows) for name, rows in ROWS.items()}


def with_history(request: UnlearningRequest = WHOLE, **changes: Any) -> Case:
    return replace(case(request), **{"history": HISTORY, **changes})


def cnn_case(request: UnlearningRequest = WHOLE, **changes: Any) -> Case:
    weights = initial_weights(CNN, 1)
    return local_case(CNN, weights, request, CNN_CONFIG, CNN_CLIENTS, **changes)
