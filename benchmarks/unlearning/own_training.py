"""Exact-Fun, FATS and SISA: methods that unlearn only what they trained themselves.

Their training comes first and is not part of what unlearning costs. Their model is another
than FedAvg's, and so is the retrained one that theirs equals bit for bit: the gaps of these
lines are between two kinds of training.
"""

from dataclasses import dataclass, fields, replace
from typing import cast

import torch

from benchmarks.baselines.exact_fun import ExactFun
from benchmarks.baselines.fats import Fats
from benchmarks.baselines.history import PastRound, RecordedCase, with_rounds
from benchmarks.baselines.registry import make
from benchmarks.baselines.sisa import (
    ShardedCase,
    Sisa,
    ensemble_probabilities,
)
from benchmarks.unlearning.contenders import Contender
from benchmarks.unlearning.task import Task
from workers.methods.network.base import Hooks, Side, Unlearned, UnlearningCase
from workers.methods.network.local_case import local_case
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.evaluate import logits_of
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes
from workers.training.networks.weights import Weights

LEAST = 1e-300  # a probability, before its logarithm
FATS_ROUNDS, FATS_STEPS = 3, 5  # times the training's rounds: 60 for 20, ridge paper, A1


@dataclass(frozen=True, slots=True, eq=False)
class UpdateResult:
    """What a method left: a model, or the members of an ensemble whose answers are averaged."""

    unlearned: Unlearned
    members: tuple[Weights, ...]


def run(contender: Contender, case: UnlearningCase, hooks: Hooks) -> UpdateResult:
    """Run a method on the FedAvg model. Raises what it refuses with."""
    found = make(contender.method, contender.settings).run(case, hooks)
    return UpdateResult(found, (found.weights,))


def train_and_run(contender: Contender, task: Task, hooks: Hooks) -> UpdateResult:
    """Train as the method needs it, then run it. Raises what it refuses with."""
    settings = dict(contender.settings)
    engine, rows, config = (
        InProcess(task.clients, task.device, threads=1),
        sizes(task.clients),
        task.config,
    )
    if contender.method == "sisa":
        sisa = cast(Sisa, make("sisa", settings))
        sharded = sisa.train(task.network, rows, config, engine)
        case = _case(task, sharded.weights)
        given = {field.name: getattr(case, field.name) for field in fields(UnlearningCase)}
        ensemble = sisa.run(ShardedCase(**given, sharded=sharded), hooks)
        return UpdateResult(ensemble, ensemble.members)
    if contender.method == "fats":
        fats = cast(Fats, make("fats", {"steps": FATS_STEPS, **settings}))
        config = replace(config, rounds=FATS_ROUNDS * config.rounds)
        sampled = fats.train(task.network, Side(engine, rows), config)
        case = _case(task, sampled.weights, sampled.history, rounds=config.rounds)
        found = fats.run(case, hooks)
        return UpdateResult(found, (found.weights,))
    exact = cast(ExactFun, make("exact-fun", settings))
    quantised = exact.train(task.network, rows, config, engine)
    found = exact.run(_case(task, quantised.weights, quantised.history), hooks)
    return UpdateResult(found, (found.weights,))


def answers(task: Task, members: tuple[Weights, ...], rows: ClientData) -> torch.Tensor:
    """Return logits (n, classes, ...); of an ensemble the logarithm of its probabilities."""
    if len(members) == 1:
        return logits_of(task.network, members[0], rows.inputs, task.device, threads=1)
    found = ensemble_probabilities(task.network, members, rows.inputs)
    return found.clamp_min(LEAST).log().float()


def _case(
    task: Task,
    weights: Weights,
    history: tuple[PastRound, ...] = (),
    rounds: int | None = None,
) -> RecordedCase:
    config = task.config if rounds is None else replace(task.config, rounds=rounds)
    case = local_case(
        task.network,
        weights,
        task.request,
        config,
        task.clients,
        device=task.device,
        threads=1,
    )
    return with_rounds(case, history)
