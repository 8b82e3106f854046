"""A tiny federated training that can be run again at once, and the true claim about it."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.soundness import judging
from workers.judge.exact_retrained import RetrainedClaim
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import Weights, digest_of, encode_weights
from workers.training.replay.models import reexecute, start_digest

ROWS, FEATURES, CLASSES, CLIENTS = 48, 6, 3, 2
NETWORK: Network = network("logistic", {"features": FEATURES, "classes": CLASSES})
LOCAL = LocalConfig(epochs=1, batch_size=8, learning_rate=0.2)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingProblem:
    """Rows (48, 6) dealt to clients by turns, those to be erased, and the pinned training.

    again: the digest that the verifier's own run on the retained rows ends with.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    erased: tuple[int, ...]
    config: TrainingConfig
    before: Weights
    after: Weights
    again: str
    rng: np.random.Generator

    def kept(self, without: tuple[int, ...]) -> list[int]:
        """Return the places of all rows but some."""
        return [row for row in range(ROWS) if row not in set(without)]


def make_problem(seed: int) -> TrainingProblem:
    """Return a problem of two clients, of whom one asks for 1 to 4 of its rows."""
    rng = np.random.default_rng([6, seed])
    inputs = torch.from_numpy(rng.normal(size=(ROWS, FEATURES)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, CLASSES, ROWS))
    own = np.arange(0, ROWS, CLIENTS)
    erased = tuple(rng.choice(own, int(rng.integers(1, 5)), replace=False).tolist())
    config = TrainingConfig(rounds=3, seed=seed, local=LOCAL)
    everyone = list(range(ROWS))
    kept = [row for row in everyone if row not in erased]
    before = trained(clients(inputs, labels, everyone), config)
    retained = clients(inputs, labels, kept)
    after = trained(retained, config)
    again = reexecute(NETWORK, retained, config, ())
    return TrainingProblem(inputs, labels, erased, config, before, after, again, rng)


def clients(
    inputs: torch.Tensor, labels: torch.Tensor, rows: list[int]
) -> dict[str, ClientData]:
    """Return the clients that hold these rows."""
    chosen = torch.tensor(rows)
    return {
        f"c{one}": ClientData(inputs[mine], labels[mine])
        for one in range(CLIENTS)
        if len(mine := chosen[chosen % CLIENTS == one])
    }


def trained(data: dict[str, ClientData], config: TrainingConfig) -> Weights:
    """Return the weights that federated training ends with."""
    return train(NETWORK, sizes(data), config, InProcess(data, "cpu", threads=1)).weights


def rows_digest(data: dict[str, ClientData]) -> str:
    """Return the hex SHA-256 of all rows by client."""
    digest = hashlib.sha256()
    for name, rows in sorted(data.items()):
        digest.update(name.encode() + rows.inputs.numpy().tobytes())
        digest.update(rows.targets.numpy().tobytes())
    return digest.hexdigest()


def file_digest(weights: Weights) -> str:
    """Return the hex SHA-256 of a model file."""
    return digest_of(encode_weights(NETWORK.id, NETWORK.parameters, weights))


def claim(
    problem: TrainingProblem,
    weights: Weights,
    *,
    claimed_data: str | None = None,
    missing: tuple[int, ...] = (),
    again: str | None = None,
    stored: torch.Tensor | None = None,
) -> RetrainedClaim:
    """Return what is claimed of the weights that are published.

    missing: records that were dropped silently; stored: inputs (48, 6) by record as they are
    found after, those that went included; again: what a run on what is left ends with.
    """
    found = file_digest(weights)
    rows = problem.kept((*problem.erased, *missing))
    inputs = problem.inputs if stored is None else stored
    data = rows_digest(clients(inputs, problem.labels, rows))
    start = start_digest(NETWORK, problem.config)
    published, recomputed = (
        rows_digest(clients(of, problem.labels, list(range(ROWS))))
        for of in (problem.inputs, inputs)
    )
    return RetrainedClaim(
        retained_set=judging.retained_set(ROWS, problem.erased, missing),
        purge=judging.purge(ROWS, problem.erased, missing),
        published_digest=found,
        file_digest=found,
        reexecuted_digest=problem.again if again is None else again,
        rounds=problem.config.rounds,
        reexecuted_rounds=problem.config.rounds,
        claimed_start=start,
        start=start,
        claimed_data=data if claimed_data is None else claimed_data,
        data=data,
        answers_missing=0,
        environment_equal=True,
        answers_allowed=0,
        rows_before=(published, recomputed),
    )
