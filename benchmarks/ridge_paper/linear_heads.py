"""A linear head with cross-entropy as a network: what gradient-based methods train and unlearn.

The ridge paper's FATS and Exact-Fun (table 3) and ACU's seven baselines optimise such a head by
SGD. Features are scaled by one number so that their mean square norm on test rows is SCALE. At
the rate 0.1 the step is then 16 / E‖x‖², as in `fedavg`, and learning rates that papers give
for networks mean the same here.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.baselines.exact_fun import ExactFun
from benchmarks.baselines.fats import Fats
from benchmarks.ridge_paper.task import Task
from workers.methods.network.base import Side
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import Weights

SCALE = 160.0
FATS, EXACT_FUN = "FATS", "Exact-Fun"
STEP = 1e-2  # Exact-Fun's grid; the paper's is lost in the text at hand, and coarser ones stall


@dataclass(frozen=True, slots=True)
class Rounds:
    """Schedules of the ridge paper's appendix A1, table 6, for CIFAR-10.

    rounds and clients of Exact-Fun with all local rows; of FATS also the rows of a draw.
    """

    exact_fun: tuple[int, int] = (120, 20)
    fats: tuple[int, int, int] = (60, 5, 64)


QUICK = Rounds((10, 20), (10, 5, 64))


@dataclass(frozen=True, eq=False)
class LinearTask:
    """A task's rows as torch sees them. inputs (n, d) float32, targets (n,) int64."""

    task: Task

    @cached_property
    def factor(self) -> float:
        """What features are multiplied with."""
        return float(np.sqrt(SCALE / np.mean(np.square(self.task.test).sum(axis=1))))

    @cached_property
    def rows(self) -> ClientData:
        """All training rows."""
        return self._data(self.task.features, self.task.rows.labels)

    @cached_property
    def test(self) -> ClientData:
        """All test rows."""
        return self._data(self.task.test, self.task.test_labels)

    @property
    def network(self) -> Network:
        """The head: logits W x + b."""
        config = self.task.config
        return network("logistic", {"features": config.dimension, "classes": config.classes})

    def clients(self, owners: NDArray[np.int64]) -> dict[str, ClientData]:
        """Return the rows of each client that has any, by a name that sorts as its number."""
        named = {f"client-{owner:05d}": owner for owner in np.unique(owners).tolist()}
        return {
            name: self.rows.only(torch.from_numpy(owners == owner))
            for name, owner in named.items()
        }

    def _data(self, features: NDArray[np.float64], labels: NDArray[np.int64]) -> ClientData:
        scaled = (self.factor * features).astype(np.float32)
        return ClientData(torch.from_numpy(scaled), torch.from_numpy(labels.astype(np.int64)))


def config_of(rounds: int, seed: int = 0) -> TrainingConfig:
    """Return plain SGD: one local epoch a round in batches of 64, at the rate 0.1."""
    return TrainingConfig(rounds=rounds, seed=seed, local=LocalConfig(batch_size=64))


def logits(weights: Weights, rows: ClientData) -> torch.Tensor:
    """Return logits (n, c) float32 of a head."""
    return rows.inputs @ weights["head.weight"].T + weights["head.bias"]


def accuracy(weights: Weights, rows: ClientData) -> float:
    """Return the share of rows whose highest logit is their label."""
    hits = logits(weights, rows).argmax(1) == rows.targets
    return float(hits.double().mean())


def federated_accuracy(
    task: Task, owners: NDArray[np.int64], rounds: Rounds
) -> dict[str, float]:
    """Return the test accuracy of the heads that FATS and Exact-Fun train."""
    linear = LinearTask(task)
    clients = linear.clients(owners)
    engine, counts = InProcess(clients, "cpu", threads=1), sizes(clients)
    trained: dict[str, Weights] = {}
    number, drawn, batch = rounds.fats
    fats = Fats(clients=drawn, batch=batch)
    side = Side(engine, counts)
    trained[FATS] = fats.train(linear.network, side, config_of(number)).weights
    number, drawn = rounds.exact_fun
    exact = ExactFun(step=STEP, clients_per_round=drawn)
    trained[EXACT_FUN] = exact.train(linear.network, counts, config_of(number), engine).weights
    return {name: accuracy(weights, linear.test) for name, weights in trained.items()}
