"""Small logistic networks to audit, and methods that leak by design."""

from dataclasses import dataclass

import numpy as np
import torch

from workers.audit_pairs.draw import Plan, StoredRows
from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase
from workers.training.fedavg.base import ClientData, Work
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.networks.registry import network

NETWORK = network("logistic", {"features": 32, "classes": 3})
TRAINING = TrainingConfig(
    rounds=1, seed=0, local=LocalConfig(epochs=6, batch_size=32, learning_rate=0.5)
)
PLAN = Plan(seed=5, pairs=16, rows=12, targets=3, mislabelled=True)


def rows(count: int = 60, clients: int = 2) -> dict[str, StoredRows]:
    """Return stored rows; every fourth record is held out."""
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=count)
    inputs = rng.normal(size=(3, 32))[labels] + rng.normal(size=(count, 32))
    found = {}
    for client in range(clients):
        own = np.arange(client, count, clients)
        data = ClientData(
            torch.from_numpy(inputs[own].astype(np.float32)), torch.from_numpy(labels[own])
        )
        records = [f"r{i}" for i in own]
        found[f"c{client}"] = StoredRows(records, data, [bool(i % 4 == 0) for i in own])
    return found


@dataclass(frozen=True, slots=True)
class DoNothing:
    """A method that returns the model as it was."""

    id: str = "do-nothing"
    version: str = "1"
    needs: frozenset[Need] = frozenset()

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        return Unlearned(case.weights, Work(), "empirical-approximate", {})
