"""NaiveGA: each target ascends the loss of its rows to forget; nothing else.

Source: the baseline of HF-KCU, "Causal Unlearning in Collaborative Optimization" (arXiv
2605.20341), section 5.1: "Gradient ascent on the forget set for 10 epochs". It gives neither
a rate nor a clipping. Here the rate and batches are training's, and gradients are clipped at
5 as PGA's are: without that a small CNN's weights overflow within the ten epochs, and there is
no model to report. Its result there is chance (10 % on CIFAR-10): the loss has no upper bound,
and no recovery follows. Several targets ascend each by itself and are averaged by their rows.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from workers.methods.network.base import (
    Hooks,
    Need,
    Unlearned,
    UnlearningCase,
    check_needs,
    method,
)
from workers.methods.network.baselines.ascent import ascend
from workers.methods.network.baselines.at_clients import ask, check_targets
from workers.methods.network.guard import fixed_step
from workers.methods.network.recovery import Recovery, Step, step_and_recover
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.weights import moved


@method("naive-ga")
@dataclass(frozen=True, slots=True)
class NaiveGA:
    """Ascent of `epochs` epochs; learning_rate None: the one at the end of training.

    clip_norm 0: not clipped. Raises RefusedError for a value out of range.
    """

    id: ClassVar[str] = "naive-ga"
    version: ClassVar[str] = "1"
    needs: ClassVar[frozenset[Need]] = frozenset({"targets"})  # the targets once more
    epochs: float = 10.0
    learning_rate: float | None = None
    momentum: float = 0.0
    clip_norm: float = 5.0
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))

    def __post_init__(self) -> None:
        self._local(LocalConfig(), 1)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after the ascent.

        Raises UnmetNeedError, RowsElsewhereError, TargetError, and DivergedError if the
        ascent left no finite weights.
        """
        check_needs(self.needs, case)
        spelled = f"{self.id}/{self.version} {self!r}"
        return step_and_recover(case, spelled, lambda: self._step(case), self.recovery, hooks)

    def _step(self, case: UnlearningCase) -> Step:
        assert case.targets is not None  # check_needs
        config = case.config
        local = self._local(config.local, config.rounds + 1)
        seed = derive(config.seed, self.id, config.rounds)
        found = ask(case, case.targets, ascend, local, seed=seed)
        check_targets(found.faults)
        delta = weighted_mean(found.updates)
        weights = fixed_step(lambda step: moved(case.weights, delta, step), 1.0).weights
        notes = {
            "ascent.epochs": f"{self.epochs:.6g}",
            "ascent.learning-rate": f"{local.rate(config.rounds + 1):.6g}",
            "ascent.loss": f"{found.loss:.6g}",
            "state.bytes": "0",
        }
        return Step(weights, found.work, notes)

    def _local(self, config: LocalConfig, round: int) -> LocalConfig:
        rate = config.rate(round) if self.learning_rate is None else self.learning_rate
        return replace(
            config,
            optimizer="sgd",
            epochs=self.epochs,
            learning_rate=rate,
            decay=1.0,
            momentum=self.momentum,
            clip_norm=self.clip_norm,
            weight_decay=0.0,
            augment="none",
        )
