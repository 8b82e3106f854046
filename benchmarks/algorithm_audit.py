"""What an audit finds of each method: digits, a logistic head, pairs of models.

    python -m benchmarks.algorithm_audit [--pairs N] [--rows N] [--methods a,b] [--json FILE]

The audit of the service without the service: one record of scikit-learn's digits is learned
under a wrong class among others by two clients, and unlearned. "do-nothing" returns the
model as it was: what the audit has to find.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lethe.certificates.margins import MarginDistance, distances
from lethe.held_out import is_held_out
from workers.audit_pairs.draw import Plan, StoredRows
from workers.audit_pairs.pair import Pair, run_pair
from workers.data.digits import load_digits
from workers.judge.algorithm_audit import Finding, judge
from workers.methods.network.base import (
    Hooks,
    Need,
    Unlearned,
    UnlearningCase,
    UnlearningMethod,
)
from workers.methods.network.registry import make
from workers.training.fedavg.base import ClientData, Work
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.networks.registry import network

METHODS = ("do-nothing", "finetune", "natural", "puf-special", "hf-kcu", "retrain")
CLIENTS, HELD_OUT, SEED = 2, 0.2, 0
CONFIDENCE = 0.95
TRAINING = TrainingConfig(
    rounds=3, seed=0, local=LocalConfig(epochs=10, batch_size=64, learning_rate=2.0)
)


@dataclass(frozen=True, slots=True)
class DoNothing:
    """A method that returns the model as it was."""

    id: str = "do-nothing"
    version: str = "1"
    needs: frozenset[Need] = frozenset()

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the case's own weights."""
        return Unlearned(case.weights, Work(), "empirical-approximate", {})


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    plan = Plan(SEED, arguments.pairs, arguments.rows, targets=1, mislabelled=True)
    found = {}
    print(
        f"{'method':12} result         after     before    of  gave way  seconds a pair  "
        "KLoM after  before  noise"
    )
    for name in arguments.methods.split(","):
        started = time.perf_counter()
        pairs, finding = audited(name, plan)
        seconds = (time.perf_counter() - started) / len(pairs)
        gave_way = sum(pair.gave_way for pair in pairs)
        margins = apart(pairs)
        found[name] = {
            **spelled(finding),
            "gave_way": gave_way,
            "seconds": seconds,
            "klom": {"after": margins.after, "before": margins.before, "noise": margins.noise},
        }
        print(
            f"{name:12} {finding.result:13} ≥ {finding.after.epsilon:5.2f}   "
            f"≥ {finding.before.epsilon:5.2f}  {finding.resolution:5.2f}  {gave_way:8}  "
            f"{seconds:14.2f}  {margins.after:10.2f}  {margins.before:6.2f}  "
            f"{margins.noise:5.2f}"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


def audited(name: str, plan: Plan) -> tuple[list[Pair], Finding]:
    """Return the pairs of a method by name, and what they show."""
    method: UnlearningMethod = DoNothing() if name == "do-nothing" else make(name)
    rows, shape = stored(), {"features": 64, "classes": 10}
    pairs = [
        run_pair(network("logistic", shape), TRAINING, method, rows, plan, number)
        for number in range(plan.pairs)
    ]
    return pairs, judge(*numbers(pairs), CONFIDENCE, delta=0.0)


def apart(pairs: Sequence[Pair]) -> MarginDistance:
    """Return KLoM of the pairs to the retrained models, and what chance makes of it."""
    return distances(*numbers(pairs))


def numbers(pairs: Sequence[Pair]) -> tuple[list[float], list[float], list[float]]:
    """Return the margins of the pairs' targets: before, after, retrained."""
    before, after, retrained = (
        [getattr(pair, part) for pair in pairs] for part in ("before", "after", "retrained")
    )
    return before, after, retrained


def stored() -> dict[str, StoredRows]:
    """Return digits dealt to clients in turn, a fifth of them held out."""
    digits = load_digits()
    inputs = torch.from_numpy(digits.features.astype(np.float32) / 16)
    labels = torch.from_numpy(digits.labels.astype(np.int64))
    found = {}
    for client in range(CLIENTS):
        own = torch.arange(client, len(labels), CLIENTS)
        records = [f"d{int(place)}" for place in own]
        held = [is_held_out(SEED, HELD_OUT, record) for record in records]
        found[f"c{client}"] = StoredRows(records, ClientData(inputs[own], labels[own]), held)
    return found


def spelled(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON."""
    return {
        "result": finding.result,
        "after": finding.after.epsilon,
        "before": finding.before.epsilon,
        "resolution": finding.resolution,
        "errors_after": [finding.after.false_positives, finding.after.false_negatives],
        "trials": finding.after.trials,
    }


if __name__ == "__main__":
    main()
