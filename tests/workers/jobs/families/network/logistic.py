"""The small network with a strongly convex objective, and its optima by a minimiser of SciPy's."""

from typing import Any

import numpy as np

from lethe.held_out import is_held_out
from tests import small_network
from tests.installation import Installation
from tests.workers.jobs.families.network import networks
from tests.workers.judge.certified.logistic_claims import optimum
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.registry import network
from workers.training.networks.weights import decode_weights, encode_weights

PENALTY, SIGMA = 0.2, 0.01
LOCAL: dict[str, Any] = {
    "batch_size": 64,
    "learning_rate": 0.5,
    "epochs": 2,
    "weight_decay": PENALTY,
}
TRAINING = {"rounds": 1, "seed": 7, "local": LOCAL}
BOUND = {"row_norm": 8.0}
NOISE = {
    **{"row_norm": 8.0, "tolerance": 0.25, "sigma": SIGMA},
    **{"epsilon": 1.0, "delta": 1e-5, "releases": 2},
}
# One Newton step, whole and undamped.
STEP = {
    **{"form": "newton", "recovery": {"rounds": 0}, "guard": None},
    **{"damping": 0.0, "iterations": 60, "tolerance": 1e-6},
}


def register(installation: Installation, terms: dict[str, Any] | None, **more: Any) -> None:
    """Register the model with these settings of certified-newton, if any, and train it."""
    settings = {"hf-kcu": STEP} | ({} if terms is None else {"certified-newton": terms})
    networks.register(installation, **{"training": TRAINING, "settings": settings, **more})


def best(gone: set[str]) -> np.ndarray:
    """Return θ* (21,) of the retained training rows: bias, then weight."""
    rows = small_network.rows()
    stay = [
        place
        for place, record in enumerate(rows["records"])
        if record not in gone and not is_held_out(7, 0.25, str(record))
    ]
    theta = optimum(rows["inputs"][stay], rows["labels"][stay], PENALTY, small_network.CLASSES)
    return flat(theta[:, 0], theta[:, 1:])


def retrained(gone: set[str]) -> bytes:
    """Train as registered on the arrays themselves, sharing nothing with the service."""
    _, clients, _ = networks.federated(small_network.rows(), gone)
    config = TrainingConfig(rounds=1, seed=7, local=LocalConfig(**LOCAL))
    named = network("logistic", small_network.SHAPE)
    trained = train(named, sizes(clients), config, InProcess(clients, threads=1))
    return encode_weights(named.id, named.parameters, trained.weights)


def published(installation: Installation) -> np.ndarray:
    """Return the published weights (21,) float64 in the same order."""
    _, weights = decode_weights(networks.published(installation))
    return flat(weights["head.bias"].numpy(), weights["head.weight"].numpy())


def flat(bias: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.concatenate([bias, weight.ravel()]).astype(np.float64)
