"""Noisy fine-tuning: clipped gradient steps with Gaussian noise, then ordinary rounds.

Source: Koloskova, Allouah, Jha, Guerraoui and Koyejo, "Certified unlearning for neural
networks", ICML 2025 (arXiv 2506.06985). In offsets y from the public initial weights,

    y_0 = clip(y, C₀),    y_{t+1} = y_t - γ(clip(∇ℓ(y_t), C₁) + λ y_t) + N(0, σ²I)

with ∇ℓ the mean gradient over all retained rows. Whatever the loss is, two runs that differ
in their start alone start at most 2C₀ apart, and each step adds at most 2γC₁ to (1 - γλ)
times the distance; `workers.methods.certified.noisy_finetuning` derives (ε, δ) from that. The
rounds that follow have no noise. They see the retained rows and the result of the steps only.

Method and judge both run this code: the method's result must be repeated bit for bit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import fsum, isfinite, sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.training.fedavg.base import Engine, Work
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.errors import DivergedError, RoundFailedError
from workers.training.fedavg.rounds import collect, complete, make_tasks, train
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import ServerState, weighted_mean
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    count,
    from_vector,
    initial_weights,
    to_vector,
)

Vector = NDArray[np.float64]
Draw = Callable[[int, int], Vector]  # (step from 1, d) -> d numbers of N(0, 1)

LARGEST = 10_000  # parameters: beyond, the noise leaves nothing of the model
# Clipping leaves this share of each bound for the rounding of a step in float64. A step rounds
# by less than 2^-50 of the offset's length, so the offset may be as long as 2^30 γC₁.
SLACK = 2.0**-20
UNANSWERED = frozenset(("no-answer", "client-error"))  # temporary, unlike a bad answer
FARTHEST = 2.0**30


@dataclass(frozen=True, slots=True)
class NoisySteps:
    """steps: T. start_norm: C₀; gradient_norm: C₁; learning_rate: γ; pull: λ; sigma: σ.

    recovery_rounds: rounds of the registered training afterwards, without noise.
    Raises RefusedError for a value out of range.
    """

    steps: int
    start_norm: float
    gradient_norm: float
    learning_rate: float
    pull: float
    sigma: float
    recovery_rounds: int

    def __post_init__(self) -> None:
        if type(self.steps) is not int or not 1 <= self.steps <= 1000:
            raise RefusedError("steps: must be an integer from 1 to 1000")
        if type(self.recovery_rounds) is not int or not 0 <= self.recovery_rounds <= 10_000:
            raise RefusedError("recovery_rounds: must be an integer from 0 to 10000")
        for name in ("start_norm", "gradient_norm", "learning_rate", "sigma"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 1e-9 <= value <= 1e9:
                raise RefusedError(f"{name}: must be a number from 1e-9 to 1e9")
        if not (isfinite(self.pull) and 0 <= self.pull * self.learning_rate <= 1):
            raise RefusedError("pull: learning_rate * pull must lie between 0 and 1")


def clip(vector: Vector, limit: float) -> Vector:
    """Return the vector (d,), shortened to at most `limit` by its computed length.

    The result has a true length below limit · (1 - 2^-21): the length is computed within 2u
    of the true one, and scaling rounds each entry once. Raises DivergedError for NaN or
    infinity.
    """
    length = sqrt(fsum((vector * vector).tolist()))
    if not isfinite(length):
        raise DivergedError(
            "a gradient or a step is NaN or infinite: lower learning_rate, or use retrain"
        )
    allowed = limit * (1 - SLACK)
    return vector if length <= allowed else vector * (allowed / length)


def finetune(
    network: Network,
    weights: Weights,
    clients: Mapping[str, int],
    config: TrainingConfig,
    engine: Engine,
    chosen: NoisySteps,
    draw: Draw,
    tell: Callable[[str, int], None] = lambda phase, done: None,
) -> tuple[dict[str, torch.Tensor], Work]:
    """Return the weights after noisy steps and recovery, and the work of both.

    clients: the number of retained rows by client; all must answer. tell is called after each
    finished step ("step", 1…) and round ("recovery", 1…). Raises RoundFailedError if a client
    did not answer, DivergedError if an answer or the weights are not finite. Callers check
    the size.
    """
    start = to_vector(initial_weights(network, config.seed)).double().numpy()
    offset = clip(to_vector(weights).double().numpy() - start, chosen.start_norm)
    rate, work = chosen.learning_rate, Work()
    for step in range(1, chosen.steps + 1):
        there = from_vector(torch.from_numpy(start + offset), network)
        gradient, cost = mean_gradient(network, there, clients, config, engine, step)
        work += cost
        pulled = clip(gradient, chosen.gradient_norm) + chosen.pull * offset
        offset = offset - rate * pulled + chosen.sigma * draw(step, len(offset))
        length = sqrt(fsum((offset * offset).tolist()))
        if not length <= FARTHEST * rate * chosen.gradient_norm:
            raise DivergedError(
                "the noise moved the weights too far from the start: register a larger "
                "epsilon or a smaller start_norm, or use retrain"
            )
        tell("step", step)
    noisy = from_vector(torch.from_numpy(start + offset), network)
    if not chosen.recovery_rounds:
        return noisy, work

    def after(_: ServerState, record: RoundRecord) -> bool:
        tell("recovery", record.round)
        return False

    again = replace(
        config,
        rounds=chosen.recovery_rounds,
        seed=derive(config.seed, "noisy-finetuning", config.rounds),
    )
    try:
        trained = complete(train(network, clients, again, engine, weights=noisy, after=after))
    except RoundFailedError as error:
        if not error.reasons or error.reasons & UNANSWERED:
            raise
        raise DivergedError(
            "no client gave a usable update of the noisy weights: register a "
            "larger epsilon or a lower learning_rate, or use retrain"
        ) from None
    return dict(trained.weights), work + trained.work


def check_size(network: Network) -> None:
    """Raise RefusedError, naming limit and remedy, for a network too large for the noise."""
    size = count(network)
    if size > LARGEST:
        raise RefusedError(
            f"noisy-finetuning is for at most {LARGEST} parameters and this network has {size}"
            ": the noise would leave nothing of it. Train a smaller head on given features, or "
            "use retrain"
        )


def mean_gradient(
    network: Network,
    weights: Weights,
    clients: Mapping[str, int],
    config: TrainingConfig,
    engine: Engine,
    step: int,
) -> tuple[Vector, Work]:
    """Return the mean loss's gradient (d,) over all rows of all clients, and the work.

    Raises RoundFailedError if a client did not answer, DivergedError if a gradient is not
    finite.
    """
    seed = derive(config.seed, "noisy-finetuning", "gradients")
    tasks = make_tasks(
        network, weights, clients, config.local, round=step, seed=seed, operation="gradient"
    )
    found = collect(tasks, engine, rows=clients, min_clients=0, timeout=config.timeout)
    reasons = {fault.reason for fault in found.faults}
    if reasons - UNANSWERED:
        raise DivergedError(
            "a client's gradient is malformed, NaN or infinite: lower "
            "learning_rate, exclude the client, or use retrain"
        )
    if reasons:
        raise RoundFailedError(
            f"step {step}: {len(found.faults)} of {len(clients)} clients that stay did not "
            "answer, and the steps need all: send the request again when they are back"
        )
    return to_vector(weighted_mean(found.updates)).double().numpy(), found.work
