"""What reference models add to a verdict: how much each attack finds of what is left.

Logistic networks on made-up rows of different hardness: two classes a little apart, a fifth of
the labels wrong. The model before knows its rows by heart. What is judged lies on the line
from a model that never saw the erased rows (0 left) to the model before (1 left). Printed is
the AUC of each attack on erased and matched unseen rows, a mean over worlds, beside what the
judge's own trainings cost.

    python -m benchmarks.references          # minutes
    python -m benchmarks.references --quick  # one world
"""

import argparse
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal

import numpy as np
import torch

from workers.arrays import Labels
from workers.judge.attacks.attack import References, Setting
from workers.judge.attacks.outputs import Outputs, log_odds
from workers.judge.attacks.registry import ATTACKS, NEED_REFERENCES
from workers.judge.attacks.roc import delong
from workers.judge.samples.samples import halves
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.networks.registry import network
from workers.training.networks.weights import decode_weights, encode_weights
from workers.training.replay.models import ScoredRows, answers, reference_clients, train_file

FEATURES, CLIENTS = 300, 2
RETAINED, FORGET, UNSEEN, OTHERS = 300, 180, 180, 140
LEFT = (0.0, 0.1, 0.25, 0.5, 1.0)
MODELS = (4, 16, 64)
NETWORK = network("logistic", {"features": FEATURES, "classes": 2})
LOCAL = LocalConfig(batch_size=16, learning_rate=0.5, epochs=6)
TRAINING = TrainingConfig(rounds=3, seed=7, local=LOCAL)
Auc = dict[tuple[str, float], list[float]]
Way = Literal["", "halves of retained rows too", "own seeds"]
HALVES: Way = "halves of retained rows too"
OWN_SEEDS: Way = "own seeds"


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceWorld:
    """Rows of two clients: retained ones, those of the model before, and those scored."""

    retained: dict[str, ScoredRows]
    before: dict[str, ClientData]
    scored: dict[str, ScoredRows]
    labels: tuple[Labels, Labels]  # of retained and of scored rows, forget rows first
    seed: bytes

    def clients(self) -> dict[str, ClientData]:
        """Return the retained rows by client."""
        return {name: own.data for name, own in self.retained.items()}


def drawn(seed: int) -> ReferenceWorld:
    """Return a world of its own."""
    rng = np.random.default_rng(seed)
    count = RETAINED + FORGET + UNSEEN + OTHERS
    true = rng.integers(2, size=count)
    inputs = rng.normal(size=(count, FEATURES)).astype(np.float32)
    inputs[:, :20] += np.float32(0.35) * (2 * true[:, None] - 1).astype(np.float32)
    labels = np.where(rng.random(count) < 0.2, 1 - true, true)
    owners = rng.integers(CLIENTS, size=count)

    def by_client(first: int, last: int) -> dict[str, ScoredRows]:
        found = {}
        for client in range(CLIENTS):
            own = first + np.flatnonzero(owners[first:last] == client)
            data = ClientData(torch.from_numpy(inputs[own]), torch.from_numpy(labels[own]))
            found[f"c{client}"] = ScoredRows(data, own - first)
        return found

    known = by_client(0, RETAINED + FORGET)
    return ReferenceWorld(
        by_client(0, RETAINED),
        {name: own.data for name, own in known.items()},
        by_client(RETAINED, count),
        (labels[:RETAINED], labels[RETAINED:]),
        rng.bytes(32),
    )


def references(world: ReferenceWorld, models: int, way: Way = "") -> tuple[References, int]:
    """Return what so many reference models say, and the operations that they took.

    way: how else than the judge does they could be trained; "": as it does.
    """
    digests = [b"row %d" % place for place in range(len(world.labels[1]))]
    included = halves(world.seed, models, digests)
    known = halves(world.seed, models, [b"kept %d" % place for place in range(RETAINED)])
    odds, flops = [], 0
    for number, flags in enumerate(included):
        retained = world.clients()
        if way == HALVES:
            retained = reference_clients({}, world.retained, known[number])
        clients = reference_clients(retained, world.scored, flags)
        seed = number if way == OWN_SEEDS else TRAINING.seed
        file, took = train_file(NETWORK, clients, replace(TRAINING, seed=seed))
        odds.append(log_odds(Outputs(answers(file, NETWORK, world.scored), world.labels[1])))
        flops += took
    return References(np.array(odds), included), flops


def settings(world: ReferenceWorld, before: bytes, after: bytes) -> dict[float, Setting]:
    """Return the models on the line between two, under attack but for the references."""
    first, last = decode_weights(after)[1], decode_weights(before)[1]
    found = {}
    for left in LEFT:
        mixed = {name: part + left * (last[name] - part) for name, part in first.items()}
        file = encode_weights(NETWORK.id, NETWORK.parameters, mixed)
        said = Outputs(answers(file, NETWORK, world.scored), world.labels[1])
        own = Outputs(answers(file, NETWORK, world.retained), world.labels[0])
        ends = np.cumsum([FORGET, UNSEEN])
        parts = [said.only(part) for part in np.split(np.arange(len(said)), ends)]
        found[left] = Setting(parts[0], parts[1], own, parts[2])
    return found


def measure(seed: int, found: Auc) -> dict[int, tuple[float, float]]:
    """Add the AUCs of one world; return by models their operations and seconds in trainings."""
    world = drawn(seed)
    before, _ = train_file(NETWORK, world.before, TRAINING)
    started = perf_counter()
    after, once = train_file(NETWORK, world.clients(), TRAINING)
    seconds = perf_counter() - started
    made = settings(world, before, after)
    costs = {}
    for models in MODELS:
        started = perf_counter()
        trained, flops = references(world, models)
        costs[models] = flops / once, (perf_counter() - started) / seconds
        for left, setting in made.items():
            for name in sorted(NEED_REFERENCES):
                attacked = replace(setting, references=trained)
                _add(found, f"{name}, {models} models", left, attacked, name)
    for way in (HALVES, OWN_SEEDS):
        trained, _ = references(world, 16, way)
        for left, setting in made.items():
            attacked = replace(setting, references=trained)
            _add(found, f"lira, 16 models, {way}", left, attacked, "lira")
    for left, setting in made.items():
        for name in sorted(set(ATTACKS) - NEED_REFERENCES):
            _add(found, name, left, setting, name)
    return costs


def _add(found: Auc, row: str, left: float, setting: Setting, attack: str) -> None:
    scores = ATTACKS[attack](setting)
    found.setdefault((row, left), []).append(delong(scores.forget, scores.unseen)[0])


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    worlds = 1 if parser.parse_args().quick else 4
    torch.set_num_threads(1)
    found: Auc = {}
    costs = [measure(seed, found) for seed in range(worlds)]
    print("| attack | " + " | ".join(f"{left:g} left" for left in LEFT) + " |")
    print("|---" * (1 + len(LEFT)) + "|")
    for row in sorted({name for name, _ in found}):
        means = [f"{np.mean(found[row, left]):.3f}" for left in LEFT]
        print(f"| {row} | " + " | ".join(means) + " |")
    print(f"\nMeans over {worlds} worlds; 0.5 is chance.\n")
    print("| reference models | operations, in retrainings | seconds, in retrainings |")
    print("|---|---|---|")
    for models in MODELS:
        operations, seconds = np.median([cost[models] for cost in costs], axis=0)
        print(f"| {models} | {operations:.1f} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
