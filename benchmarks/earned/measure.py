"""One federation, one method: what the verifier finds, without the service around it.

The same training, the same methods and the same verifier as in the service, so that many
settings can be tried in the time of one installation. Only the claim's commitments are made up.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.soundness.judging import purge, retained_set
from lethe.held_out import is_held_out
from workers.arrays import Matrix
from workers.judge.base import Report
from workers.judge.policy.document import digest, from_document
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.methods.network.base import UnlearningRequest
from workers.methods.network.local_case import local_case
from workers.methods.network.registry import make
from workers.methods.network.validation import held_out
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.evaluate import logits_of
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import Weights

SAMPLED = 2000  # retained rows at most, as in the service
FILE, OTHER, ROWS = "00" * 32, "11" * 32, "22" * 32


@dataclass(frozen=True, slots=True, eq=False)
class TrainedFederation:
    """A federation, trained as its manifest says; the rows of `target` are to be forgotten."""

    manifest: Mapping[str, Any]
    named: Network
    training: TrainingConfig
    clients: dict[str, ClientData]
    unseen: dict[str, ClientData]
    target: str
    before: Weights
    seconds: float


def make_world(
    manifest: Mapping[str, Any], arrays: Mapping[str, Any], target: str
) -> TrainedFederation:
    """Deal rows as the service does, and train on those that are not held out."""
    chosen = manifest["network"]
    named = network(chosen["id"], chosen["parameters"])
    given = dict(manifest["training"])
    training = TrainingConfig(**{**given, "local": LocalConfig(**given["local"])})
    held = np.array(
        [is_held_out(training.seed, manifest["held_out"], one) for one in arrays["records"]]
    )
    sides: list[dict[str, ClientData]] = []
    for side in (~held, held):
        places = {
            str(client): np.flatnonzero(side & (arrays["clients"] == client))
            for client in np.unique(arrays["clients"])
        }
        sides.append(
            {
                client: ClientData(
                    torch.from_numpy(arrays["inputs"][own]),
                    torch.from_numpy(arrays["labels"][own]),
                )
                for client, own in places.items()
                if len(own)
            }
        )
    clients, unseen = sides
    started = time.perf_counter()
    engine = InProcess(clients, threads=1)
    before = train(named, sizes(clients), training, engine).weights
    seconds = time.perf_counter() - started
    return TrainedFederation(
        manifest, named, training, clients, unseen, target, before, seconds
    )


def unlearned(world: TrainedFederation, method: str) -> tuple[Weights, float]:
    """Return the model after a method with the registered settings, and its seconds.

    "no step" is the model as it was, "retrain" the one that never saw the rows.
    """
    started = time.perf_counter()
    if method == "no step":
        return world.before, 0.0
    stay = {name: rows for name, rows in world.clients.items() if name != world.target}
    if method == "retrain":
        engine = InProcess(stay, threads=1)
        weights = train(world.named, sizes(stay), world.training, engine).weights
        return weights, time.perf_counter() - started
    guarding = _joined({n: rows for n, rows in world.unseen.items() if n != world.target})
    case = local_case(
        world.named,
        world.before,
        UnlearningRequest(frozenset({world.target})),
        world.training,
        world.clients,
        threads=1,
        validation=held_out(world.named, guarding, threads=1),
    )
    found = make(method, world.manifest["settings"].get(method, {})).run(case)
    return found.weights, time.perf_counter() - started


def judged(world: TrainedFederation, after: Weights, seed: int = 0) -> Report:
    """Return the verdict on a published model; seed: which rows are matched and sampled."""
    forget = world.clients[world.target]
    pool = _joined(world.unseen)
    names = np.repeat(list(world.unseen), [len(rows) for rows in world.unseen.values()])
    stay = _joined({n: rows for n, rows in world.clients.items() if n != world.target})
    rng = np.random.default_rng([23, seed])
    drawn = rng.permutation(len(stay))[:SAMPLED]
    stay = stay.only(torch.from_numpy(drawn))
    total, erased = sum(map(len, world.clients.values())), range(len(forget))
    policy = from_document(world.manifest["policy"])

    def answers(weights: Weights, rows: ClientData) -> Matrix:
        found: Matrix = logits_of(world.named, weights, rows.inputs, threads=1).double().numpy()
        return found

    return VERIFIER.verify(
        EmpiricalClaim(
            retained_set=retained_set(total, erased),
            purge=purge(total, erased),
            published_digest=FILE,
            model=FILE,
            finite=True,
            forget_labels=forget.targets.numpy(),
            forget_clients=np.full(len(forget), world.target),
            forget_before=answers(world.before, forget),
            forget_after=answers(after, forget),
            pool_labels=pool.targets.numpy(),
            pool_clients=names,
            pool_before=answers(world.before, pool),
            pool_after=answers(after, pool),
            retained_labels=stay.targets.numpy(),
            retained_before=answers(world.before, stay),
            retained_after=answers(after, stay),
            policy=policy,
            policy_digest=digest(policy),
            requests_before=0,
            seed=rng.bytes(32),
            rows_before=(ROWS, ROWS),
            rows_after=(ROWS, ROWS),
            model_before=(OTHER, OTHER),
        )
    )


def _joined(parts: Mapping[str, ClientData]) -> ClientData:
    return ClientData(
        torch.cat([part.inputs for part in parts.values()]),
        torch.cat([part.targets for part in parts.values()]),
    )
