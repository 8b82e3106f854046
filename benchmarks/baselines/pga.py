"""PGA: the target ascends its loss, never leaving a ball around the others' model.

Source: Halimi et al., "Federated Unlearning: How to Efficiently Erase a Client in FL?" (arXiv
2207.05521) and its published notebook (IBM/federated-unlearning), read at hand:

    w_ref = (N w - w_i) / (N - 1)        the mean of the others' last local models
    δ     = mean distance of w_ref to 10 random initial models / 3
    w ← the point of the ball ‖w - w_ref‖ <= δ nearest to w + the ascent step

Clip 5, rate 0.01, momentum 0.9, 5 epochs, starting from w_ref. The means here are weighted by
rows, the paper's with equal ones. `distance="squared"` is the notebook: its distances are
squared, so that δ² is a third of a mean square and the ball √3 times as wide. It ends early
once ‖w - w_i‖² > stop: 2.2 there; PUF's appendix A tuned 9.0 (IID) and 6.5, the default. That
is a length in weights: tune it. Where local updates are long, w_ref itself is further away
(the note `pga.apart`) and one step is all; without a stop a small CNN on digits was at chance
and three rounds of recovery did not bring it back.
Everybody must have taken part in the last round, and each client's last update must be kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from typing import Literal

import torch
from torch import nn

from benchmarks.baselines.history import (
    PastRound,
    RecordedCase,
    check_history,
    check_whole_clients,
    kept_bytes,
    recorded,
)
from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Unlearned,
    UnlearningCase,
    UnmetNeedError,
    check_needs,
)
from workers.methods.network.baselines.ascent import ascend
from workers.methods.network.baselines.at_clients import ask, check_targets
from workers.methods.network.recovery import Recovery, Step, step_and_recover
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    difference,
    initial_weights,
    moved,
    norm,
    weights_of,
)

Distance = Literal["euclidean", "squared"]


@dataclass(frozen=True, slots=True)
class Pga:
    """Projected gradient ascent with its settings, then recovery.

    stop None: all epochs. batch_size None: as in training (the paper: 512 or 1024).
    Raises RefusedError for a value out of range.
    """

    epochs: float = 5.0
    learning_rate: float = 0.01
    momentum: float = 0.9
    clip_norm: float = 5.0
    batch_size: int | None = None
    stop: float | None = 6.5
    random_models: int = 10
    distance: Distance = "euclidean"
    recovery: Recovery = field(default_factory=Recovery)

    def __post_init__(self) -> None:
        self._local(LocalConfig())
        if self.stop is not None and not (isfinite(self.stop) and self.stop > 0):
            raise RefusedError("stop: must be a positive squared distance, or none")
        if type(self.random_models) is not int or not 1 <= self.random_models <= 1000:
            raise RefusedError("random_models: must be an integer from 1 to 1000")
        if self.distance not in ("euclidean", "squared"):
            raise RefusedError("distance: choose euclidean or squared")

    @property
    def id(self) -> str:
        """The method's name."""
        return "pga"

    @property
    def version(self) -> str:
        """The method's version."""
        return "1"

    @property
    def needs(self) -> frozenset[Need]:
        """The targets once more, and a RecordedCase of the last round."""
        return frozenset({"targets"})

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after ascent and recovery.

        Raises UnmetNeedError, also if a target or all others missed the last round,
        RowsElsewhereError, TargetError, DivergedError, RefusedError for rows.
        """
        check_needs(self.needs, case)
        kept = recorded(case)
        check_whole_clients(case, "pga")
        check_history(replace(kept, history=kept.history[-1:]) if _stateless(case) else kept)
        spelled = f"{self.id}/{self.version} {self!r}"
        return step_and_recover(case, spelled, lambda: self._step(kept), self.recovery, hooks)

    def _step(self, case: RecordedCase) -> Step:
        assert case.targets is not None  # check_needs
        config, last = case.config, case.history[-1]
        reference = reference_model(last, frozenset(case.request.clients))
        seeds = [derive(config.seed, self.id, i) for i in range(self.random_models)]
        radius = ball_radius(case.network, reference, seeds, self.distance)
        stop = self.stop

        def answer(
            task: RoundTask, data: ClientData, device: torch.device | str
        ) -> ClientUpdate:
            own = moved(last.weights, last.updates[task.client].delta)

            def after(module: nn.Module) -> bool:
                project(module, task.weights, radius)
                far = norm(difference(weights_of(module), own)) ** 2
                return stop is not None and far > stop

            return ascend(task, data, device, after=after)

        found = ask(
            case,
            case.targets,
            answer,
            self._local(config.local),
            seed=derive(config.seed, self.id, config.rounds),
            weights=reference,
        )
        check_targets(found.faults)
        # The ball is convex: a mean of models in it is in it.
        weights = moved(reference, weighted_mean(found.updates))
        own = {name: moved(last.weights, last.updates[name].delta) for name in found.updates}
        apart = max(norm(difference(reference, model)) ** 2 for model in own.values())
        notes = {
            "pga.apart": f"{apart:.6g}",  # squared, of w_ref from a target's own model
            "pga.radius": f"{radius:.6g}",
            "pga.moved": f"{norm(difference(weights, reference)):.6g}",
            "pga.steps": str(found.work.steps),
            "state.bytes": str(kept_bytes([last])),
        }
        return Step(weights, found.work, notes)

    def _local(self, config: LocalConfig) -> LocalConfig:
        return replace(
            config,
            optimizer="sgd",
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            decay=1.0,
            momentum=self.momentum,
            clip_norm=self.clip_norm,
            batch_size=config.batch_size if self.batch_size is None else self.batch_size,
            weight_decay=0.0,
            augment="none",
        )


def reference_model(last: PastRound, leaving: frozenset[str]) -> Weights:
    """Return w_ref, the mean of the others' last local models, weighted by rows.

    Raises UnmetNeedError if one who leaves, or everybody else, missed the round.
    """
    others = {name: update for name, update in last.updates.items() if name not in leaving}
    if not others or not leaving <= last.updates.keys():
        raise UnmetNeedError(
            "a target client, or everybody else, took no part in the last round: use "
            "puf-special, hf-kcu or retrain"
        )
    return moved(last.weights, weighted_mean(others))


def ball_radius(
    network: Network, reference: Weights, seeds: list[int], kind: Distance = "euclidean"
) -> float:
    """Return δ: a third of the mean distance to the initial models of these seeds.

    "squared": the square root of a third of the mean squared distance.
    """
    lengths = [norm(difference(initial_weights(network, seed), reference)) for seed in seeds]
    if kind == "squared":
        return sqrt(sum(length**2 for length in lengths) / len(lengths) / 3)
    return sum(lengths) / len(lengths) / 3


def project(module: nn.Module, center: Mapping[str, torch.Tensor], radius: float) -> None:
    """Move a module's parameters to the nearest point of the ball, if they are outside.

    Up to the rounding of each weight to float32.
    """
    away = difference(weights_of(module), center)
    length = norm(away)
    if not length > radius:  # NaN stays: the server names it
        return
    inside = moved(center, away, radius / length)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(inside[name])


def _stateless(case: UnlearningCase) -> bool:
    return case.config.server.optimizer == "sgd" and not case.config.server.momentum


METHODS = {"pga": Pga}
