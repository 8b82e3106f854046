"""A federation of four clients on a logistic head, and its gradients by hand in float64."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workers.methods.network.base import UnlearningCase, UnlearningRequest
from workers.methods.network.baselines.central import CentralMethod
from workers.methods.network.baselines.finetune import Finetune
from workers.methods.network.baselines.l1_sparsity import L1Sparsity
from workers.methods.network.baselines.neg_grad import NegGrad
from workers.methods.network.baselines.neg_grad_plus import NegGradPlus
from workers.methods.network.baselines.random_label import RandomLabel
from workers.methods.network.baselines.scrub import Scrub
from workers.methods.network.baselines.wood_fisher import WoodFisher
from workers.methods.network.local_case import local_case
from workers.training.fedavg.base import ClientData, Clients
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.networks.registry import network
from workers.training.networks.weights import Weights, initial_weights

torch.set_num_threads(1)

FEATURES, CLASSES = 4, 3
NETWORK = network("logistic", {"features": FEATURES, "classes": CLASSES})
ROWS = {"anna": 7, "bert": 12, "cleo": 5, "dora": 6}
CONFIG = TrainingConfig(rounds=2, seed=3, local=LocalConfig(batch_size=4, learning_rate=0.1))
WEIGHTS = initial_weights(NETWORK, 11)
METHODS: dict[str, CentralMethod] = {
    method.id: method
    for method in (
        Finetune(epochs=2),
        L1Sparsity(epochs=2),
        NegGrad(epochs=2, learning_rate=0.01),
        NegGradPlus(epochs=2),
        RandomLabel(epochs=2),
        Scrub(epochs=2, max_steps=1),
        WoodFisher(samples=10, damping=0.1),
    )
}
Array = NDArray[np.float64]


def client_data(rows: int, seed: int) -> ClientData:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(CLASSES, (rows,), generator=generator)
    inputs = torch.randn((rows, FEATURES), generator=generator)
    inputs[:, :CLASSES] += 2 * torch.nn.functional.one_hot(targets, CLASSES)
    return ClientData(inputs, targets)


CLIENTS: Clients = {name: client_data(rows, rows) for name, rows in ROWS.items()}
# One whole client, and two rows of another: `bert` is on both sides.
REQUEST = UnlearningRequest(frozenset({"cleo"}), {"bert": (1, 5)})


def make_case(
    clients: Clients = CLIENTS, config: TrainingConfig = CONFIG, **more: Any
) -> UnlearningCase:
    return local_case(NETWORK, WEIGHTS, REQUEST, config, clients, **more)


def one_batch(learning_rate: float = 0.1) -> TrainingConfig:
    """Every pass is one step: nothing depends on the order of rows."""
    local = replace(CONFIG.local, batch_size=100, learning_rate=learning_rate)
    return replace(CONFIG, local=local)


def bits(weights: Weights) -> dict[str, bytes]:
    return {name: part.numpy().tobytes() for name, part in weights.items()}


@dataclass(frozen=True)
class Head:
    """Softmax regression in NumPy: shares nothing with torch but the starting weights."""

    w: Array  # (classes, features)
    b: Array  # (classes,)

    @classmethod
    def of(cls, weights: Weights = WEIGHTS) -> "Head":
        return cls(
            weights["head.weight"].double().numpy(), weights["head.bias"].double().numpy()
        )

    def logits(self, x: Array) -> Array:
        return np.asarray(x @ self.w.T + self.b)

    def back(self, slope: Array, x: Array) -> "Head":
        """The gradient of a mean over rows, from the slope (n, c) of each row's loss."""
        return Head(slope.T @ x / len(x), slope.mean(0))

    def gradient(self, x: Array, y: NDArray[np.int64]) -> "Head":
        return self.back(softmax(self.logits(x)) - np.eye(CLASSES)[y], x)

    def plus(self, other: "Head", scale: float) -> "Head":
        return Head(self.w + scale * other.w, self.b + scale * other.b)

    def vector(self) -> Array:
        """In the order of the names: bias, then weight."""
        return np.concatenate([self.b, self.w.ravel()])


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def pooled(which: str, clients: Clients = CLIENTS) -> tuple[Array, NDArray[np.int64]]:
    """The rows to retain or to forget under REQUEST, picked by hand."""
    x, y = [], []
    for name in sorted(clients):
        for row in range(len(clients[name])):
            leaves = name == "cleo" or (name == "bert" and row in (1, 5))
            if leaves == (which == "forget"):
                x.append(clients[name].inputs[row].double().numpy())
                y.append(int(clients[name].targets[row]))
    return np.stack(x), np.array(y)


def close(weights: Weights, head: Head, tolerance: float = 1e-6) -> bool:
    mine = Head.of(weights)
    return bool(np.abs(mine.vector() - head.vector()).max() < tolerance)


def moved_from(weights: Weights, start: Mapping[str, torch.Tensor] = WEIGHTS) -> float:
    return max(float((weights[name] - start[name]).abs().max()) for name in weights)
