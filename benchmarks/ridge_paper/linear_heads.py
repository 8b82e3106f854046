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
from benchmarks.baselines.history import PastRound, RecordedCase
from benchmarks.ridge_paper.task import Task
from workers.methods.network.base import Side, UnlearningRequest
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import Weights

SCALE = 160.0
FATS, EXACT_FUN = FEDERATED = ("FATS", "Exact-Fun")
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

    def clients(
        self, owners: NDArray[np.int64], keep: NDArray[np.bool_] | None = None
    ) -> dict[str, ClientData]:
        """Return the kept rows of each client that has any; names sort as numbers do."""
        kept = np.ones(len(owners), dtype=np.bool_) if keep is None else keep
        return {
            f"client-{owner:05d}": self.rows.only(torch.from_numpy(kept & (owners == owner)))
            for owner in np.unique(owners[kept]).tolist()
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


@dataclass(frozen=True, slots=True)
class _Trained:
    weights: Weights
    history: tuple[PastRound, ...]


class FederatedHeads:
    """The heads that FATS and Exact-Fun train on a task's clients, and forget rows from.

    Both kept their training: to forget, they repeat it from the first round in which the rows
    counted. Each call forgets from the head of all rows: FATS knows rows by their places there.
    """

    def __init__(self, task: Task, owners: NDArray[np.int64], rounds: Rounds) -> None:
        self.linear, self._owners = LinearTask(task), owners
        clients = self.linear.clients(owners)
        self._sizes = sizes(clients)
        engine, network = InProcess(clients, "cpu", threads=1), self.linear.network
        number, drawn, batch = rounds.fats
        fats = Fats(clients=drawn, batch=batch)
        sampled = fats.train(network, Side(engine, self._sizes), config_of(number))
        number_exact, drawn = rounds.exact_fun
        exact = ExactFun(step=STEP, clients_per_round=drawn)
        config = config_of(number_exact)
        quantised = exact.train(network, self._sizes, config, engine)
        self._kept: dict[str, tuple[Fats | ExactFun, TrainingConfig, _Trained]] = {
            FATS: (fats, config_of(number), _Trained(sampled.weights, sampled.history)),
            EXACT_FUN: (exact, config, _Trained(quantised.weights, quantised.history)),
        }

    def accuracy(self) -> dict[str, float]:
        """Return each head's accuracy on test rows, before anybody leaves."""
        return {
            name: accuracy(trained.weights, self.linear.test)
            for name, (_, _, trained) in self._kept.items()
        }

    def forget(self, name: str, keep: NDArray[np.bool_]) -> Weights:
        """Return the head that `name` makes of its training without the rows not kept (n,)."""
        method, config, trained = self._kept[name]
        case = RecordedCase(
            self.linear.network,
            trained.weights,
            self._request(keep),
            config,
            self._retained(keep),
            history=trained.history,
        )
        return method.replay(case).weights

    def _retained(self, keep: NDArray[np.bool_]) -> Side:
        clients = self.linear.clients(self._owners, keep)
        return Side(InProcess(clients, "cpu", threads=1), sizes(clients))

    def _request(self, keep: NDArray[np.bool_]) -> UnlearningRequest:
        whole: set[str] = set()
        rows: dict[str, tuple[int, ...]] = {}
        for owner, name in zip(np.unique(self._owners).tolist(), self._sizes, strict=True):
            gone = np.flatnonzero(~keep[self._owners == owner])
            if len(gone) == self._sizes[name]:
                whole.add(name)
            elif len(gone):
                rows[name] = tuple(gone.tolist())
        return UnlearningRequest(frozenset(whole), rows)
