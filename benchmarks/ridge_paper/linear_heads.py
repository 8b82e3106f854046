"""A linear head with cross-entropy as a network: what gradient-based methods train and unlearn.

The ridge paper's FedAvg, FATS and Exact-Fun (table 3) and ACU's seven baselines optimise such a
head by SGD, all with the clients and the engine of the product's federated training: their
seconds and operations compare. Features are scaled by one number so that their mean square norm
on test rows is SCALE. At the rate 0.1 the step is then 16 / E‖x‖², and learning rates that
papers give for networks mean the same here.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.baselines.exact_fun import ExactFun
from benchmarks.baselines.fats import Fats
from benchmarks.baselines.history import PastRound, RecordedCase
from benchmarks.common import timed
from benchmarks.ridge_paper.task import HeadTask
from workers.methods.network.base import Side, UnlearningRequest
from workers.training.fedavg.base import ClientData, Work
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import Weights

SCALE = 160.0
FEDAVG, FATS, EXACT_FUN = FEDERATED = ("FedAvg retrain", "FATS", "Exact-Fun")
STEP = 1e-2  # Exact-Fun's grid; the paper's is lost in the text at hand. `skips` tries others


@dataclass(frozen=True, slots=True)
class Rounds:
    """Schedules of the ridge paper's appendix A1, table 6, for CIFAR-10.

    rounds and clients of FedAvg and Exact-Fun with all local rows; of FATS also the rows of a
    draw.
    """

    fedavg: tuple[int, int] = (120, 20)
    exact_fun: tuple[int, int] = (120, 20)
    fats: tuple[int, int, int] = (60, 5, 64)


QUICK = Rounds((10, 20), (10, 20), (10, 5, 64))


@dataclass(frozen=True, eq=False)
class LinearTask:
    """A task's rows as torch sees them. inputs (n, d) float32, targets (n,) int64."""

    task: HeadTask

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


@dataclass(frozen=True, slots=True, eq=False)
class _Trained:
    weights: Weights
    history: tuple[PastRound, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Forgotten:
    """A head without the rows, and what it took: rounds trained anew, operations, seconds."""

    weights: Weights
    repeated: int
    operations: int
    seconds: float


class FederatedHeads:
    """The heads that FedAvg, FATS and Exact-Fun train on a task's clients, and forget rows of.

    FedAvg forgets by training anew. The other two kept their training: they repeat it from the
    first round in which the rows counted. Each call forgets from the head of all rows: FATS
    knows rows by their places there.
    """

    def __init__(
        self, task: HeadTask, owners: NDArray[np.int64], rounds: Rounds, step: float = STEP
    ) -> None:
        self.linear, self.rounds, self._owners = LinearTask(task), rounds, owners
        self._clients = self.linear.clients(owners)
        self._sizes = sizes(self._clients)
        self._step = step

    @cached_property
    def fedavg(self) -> Weights:
        """FedAvg's head of all rows."""
        return self._retrain(self._side(self._clients)).weights

    @cached_property
    def fats(self) -> _Trained:
        """The training that FATS keeps."""
        found = self._fats.train(
            self.linear.network, self._side(self._clients), config_of(self.rounds.fats[0])
        )
        return _Trained(found.weights, found.history)

    @cached_property
    def exact_fun(self) -> _Trained:
        """The training that Exact-Fun keeps."""
        side = self._side(self._clients)
        config = config_of(self.rounds.exact_fun[0])
        found = self._exact_fun.train(self.linear.network, self._sizes, config, side.engine)
        return _Trained(found.weights, found.history)

    def accuracy(self) -> dict[str, float]:
        """Return each head's accuracy on test rows, before anybody leaves."""
        heads = (self.fedavg, self.fats.weights, self.exact_fun.weights)
        return {
            name: accuracy(weights, self.linear.test)
            for name, weights in zip(FEDERATED, heads, strict=True)
        }

    def forget(self, name: str, keep: NDArray[np.bool_]) -> Forgotten:
        """Return the head that `name` makes of its training without the rows not kept (n,).

        The clients delete the rows before the clock starts, of all three methods.
        """
        side = self._retained(keep)
        if name == FEDAVG:
            return self._retrain(side)
        if name == FATS:
            fats = self._case(keep, side, self.fats, self.rounds.fats[0])
            sampled, spent = timed(partial(self._fats.replay, fats))
            return Forgotten(sampled.weights, sampled.repeated, sampled.work.flops, spent)
        case = self._case(keep, side, self.exact_fun, self.rounds.exact_fun[0])
        found, spent = timed(partial(self._exact_fun.replay, case))
        return Forgotten(found.weights, found.repeated, found.work.flops, spent)

    def fats_repeats(self, keep: NDArray[np.bool_]) -> int:
        """Return how many rounds FATS would repeat, without repeating them."""
        rounds = self.rounds.fats[0]
        first = self._fats.first_touched(
            self._case(keep, self._retained(keep), self.fats, rounds)
        )
        return rounds + 1 - first if first else 0

    def exact_fun_repeats(self, keep: NDArray[np.bool_]) -> int:
        """Return how many rounds Exact-Fun would repeat, repeating few of them.

        A training of the first rounds alone is one of the same kind, whose history is the
        beginning of the whole one's.
        """
        side, (rounds, _) = self._retained(keep), self.rounds.exact_fun
        kept, looked = self.exact_fun, 1
        while True:
            looked = min(looked, rounds)
            after = kept.history[looked].weights if looked < rounds else kept.weights
            part = _Trained(after, kept.history[:looked])
            standing = self._exact_fun.replay(self._case(keep, side, part, looked)).standing
            if standing < looked:
                # The round that came out otherwise is not trained anew but aggregated anew.
                return rounds - standing - 1
            if looked == rounds:
                return 0
            looked *= 2

    @property
    def _fats(self) -> Fats:
        _, drawn, batch = self.rounds.fats
        return Fats(clients=drawn, batch=batch)

    @property
    def _exact_fun(self) -> ExactFun:
        return ExactFun(step=self._step, clients_per_round=self.rounds.exact_fun[1])

    def _retrain(self, side: Side) -> Forgotten:
        rounds, drawn = self.rounds.fedavg
        share = min(1.0, drawn / len(side.rows))
        config = replace(config_of(rounds), participation=share)
        work = partial(train, self.linear.network, side.rows, config, side.engine)
        trained, spent = timed(work)
        total = sum((record.work for record in trained.records), Work())
        return Forgotten(trained.state.weights, rounds, total.flops, spent)

    def _case(
        self, keep: NDArray[np.bool_], side: Side, trained: _Trained, rounds: int
    ) -> RecordedCase:
        return RecordedCase(
            self.linear.network,
            trained.weights,
            self._request(keep),
            config_of(rounds),
            side,
            history=trained.history,
        )

    def _retained(self, keep: NDArray[np.bool_]) -> Side:
        """Return the clients that have rows left; those that lose none are not copied."""
        left = dict(self._clients)
        for owner, name in zip(np.unique(self._owners).tolist(), self._sizes, strict=True):
            kept = keep[self._owners == owner]
            if not kept.any():
                del left[name]
            elif not kept.all():
                left[name] = left[name].only(torch.from_numpy(kept))
        return self._side(left)

    @staticmethod
    def _side(clients: dict[str, ClientData]) -> Side:
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
