"""Providers who claim to have trained anew: what each publishes instead."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from benchmarks.soundness.training_problem import (
    CLASSES,
    NETWORK,
    ROWS,
    TrainingProblem,
    claim,
    clients,
    rows_digest,
    trained,
)
from workers.judge.exact_retrained import RetrainedClaim
from workers.training.networks.weights import Weights, weights_of, with_weights
from workers.training.replay.models import reexecute

STEPS, RATE, NOISE = 10, 0.1, 1e-3

Provider = Callable[[TrainingProblem], RetrainedClaim]


def honest_retrain(problem: TrainingProblem) -> RetrainedClaim:
    """Return the true claim."""
    return claim(problem, problem.after)


def no_op(problem: TrainingProblem) -> RetrainedClaim:
    """Publish the old weights."""
    return claim(problem, problem.before)


def wrong_client(problem: TrainingProblem) -> RetrainedClaim:
    """Train anew without as many rows of the other client."""
    others = np.arange(1, ROWS, 2)
    chosen = problem.rng.choice(others, len(problem.erased), replace=False).tolist()
    return claim(problem, _without(problem, tuple(chosen)))


def relabel(problem: TrainingProblem) -> RetrainedClaim:
    """Train anew on all rows, those to be erased under other labels."""
    labels = problem.labels.clone()
    places = torch.tensor(problem.erased)
    labels[places] = (labels[places] + 1) % CLASSES
    data = clients(problem.inputs, labels, list(range(ROWS)))
    return claim(problem, trained(data, problem.config))


def noise(problem: TrainingProblem) -> RetrainedClaim:
    """Publish the old weights with noise."""
    moved = {
        name: weight
        + torch.from_numpy(problem.rng.normal(scale=NOISE, size=weight.shape)).float()
        for name, weight in problem.before.items()
    }
    return claim(problem, moved)


def last_layer(problem: TrainingProblem) -> RetrainedClaim:
    """Train the old head, which is the only layer here, further on the retained rows."""
    rows = torch.tensor(problem.kept(problem.erased))
    return claim(problem, _tuned(problem, rows, 1.0))


def overfit(problem: TrainingProblem) -> RetrainedClaim:
    """Raise the loss on the erased rows, which is what a known attack looks at."""
    return claim(problem, _tuned(problem, torch.tensor(problem.erased), -1.0))


def old_version(problem: TrainingProblem) -> RetrainedClaim:
    """Publish an earlier version: that of the round before the last."""
    data = clients(problem.inputs, problem.labels, list(range(ROWS)))
    earlier = replace(problem.config, rounds=problem.config.rounds - 1)
    return claim(problem, trained(data, earlier))


def one_ulp(problem: TrainingProblem) -> RetrainedClaim:
    """Move one weight of the true model to the next float32."""
    moved = {name: weight.clone() for name, weight in problem.after.items()}
    flat = moved["head.weight"].view(-1)
    place = int(problem.rng.integers(len(flat)))
    flat[place] = torch.nextafter(flat[place], torch.tensor(float("inf")))
    return claim(problem, moved)


def forged_data(problem: TrainingProblem) -> RetrainedClaim:
    """Train on an invented row in place of a stored one, and claim the stored rows' digest."""
    inputs = problem.inputs.clone()
    kept = problem.kept(problem.erased)
    place = int(problem.rng.choice(kept))
    inputs[place, 0] = torch.nextafter(inputs[place, 0], torch.tensor(float("inf"))) + 1e-3
    invented = clients(inputs, problem.labels, kept)
    digest = rows_digest(invented) if problem.rng.integers(2) else None
    return claim(problem, trained(invented, problem.config), claimed_data=digest)


def dropped_record(problem: TrainingProblem) -> RetrainedClaim:
    """Lose one retained record more, in rows, training, roots and counts alike."""
    lost = (int(problem.rng.choice(problem.kept(problem.erased))),)
    left = problem.kept((*problem.erased, *lost))
    data = clients(problem.inputs, problem.labels, left)
    again = reexecute(NETWORK, data, problem.config, ())
    return claim(problem, trained(data, problem.config), missing=lost, again=again)


def swapped_rows(problem: TrainingProblem) -> RetrainedClaim:
    """Store the erased inputs under the names of others, who are erased in their place."""
    kept, erased = problem.kept(problem.erased), torch.tensor(problem.erased)
    others = torch.from_numpy(problem.rng.choice(kept, len(erased), replace=False))
    inputs = problem.inputs.clone()
    inputs[erased], inputs[others] = problem.inputs[others], problem.inputs[erased]
    data = clients(inputs, problem.labels, kept)
    again = reexecute(NETWORK, data, problem.config, ())
    return claim(problem, trained(data, problem.config), again=again, stored=inputs)


PROVIDERS: dict[str, Provider] = {
    "honest retrain": honest_retrain,
    "no-op": no_op,
    "wrong client": wrong_client,
    "relabel": relabel,
    "noise": noise,
    "last layer": last_layer,
    "overfit one attack": overfit,
    "old version": old_version,
    "one ulp": one_ulp,
    "forged evidence": forged_data,
    "dropped record": dropped_record,
    "swapped rows": swapped_rows,
}


def _without(problem: TrainingProblem, rows: tuple[int, ...]) -> Weights:
    data = clients(problem.inputs, problem.labels, problem.kept(rows))
    return trained(data, problem.config)


def _tuned(problem: TrainingProblem, rows: torch.Tensor, sign: float) -> Weights:
    module = with_weights(NETWORK, problem.before)
    steps = torch.optim.SGD(module.parameters(), lr=RATE)
    for _ in range(STEPS):
        steps.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            module(problem.inputs[rows]), problem.labels[rows]
        )
        torch.autograd.backward(sign * loss)
        steps.step()
    return weights_of(module)
