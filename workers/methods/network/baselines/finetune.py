"""Finetune: train on with the rows that stay, and let the rest be forgotten by itself.

Source: the baseline of Golatkar et al., "Eternal Sunshine of the Spotless Net", CVPR 2020,
which builds on catastrophic forgetting. ACU's appendix E.3 credits Warnecke et al., "Machine
Unlearning of Features and Labels", NDSS 2023, and trains 10 epochs; its learning rate is lost
in the text at hand, so the training's own is the default. Neither paper was at hand.
"""

from dataclasses import dataclass, field

from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Pool, Tell, unlearn
from workers.methods.network.baselines.descent import Descent, Passes
from workers.methods.network.recovery import Recovery, Step
from workers.training.fedavg.seeds import derive


@method("finetune")
@dataclass(frozen=True, slots=True)
class Finetune:
    """Ordinary minibatch steps. It never sees a row to forget, nor who had it."""

    epochs: int = 10
    learning_rate: float | None = None
    batch_size: int | None = None
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))

    def __post_init__(self) -> None:
        self._passes()

    @property
    def id(self) -> str:
        """The method's name."""
        return "finetune"

    @property
    def version(self) -> str:
        """The method's version."""
        return "1"

    @property
    def needs(self) -> frozenset[Need]:
        """Nobody who leaves."""
        return frozenset()

    @property
    def pools(self) -> frozenset[Pool]:
        """The rows that stay."""
        return frozenset({"retained"})

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after training on. Raises as `central.unlearn`."""
        return unlearn(self, case, hooks)

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs."""
        descent = Descent(case, self._passes(), rows.device)
        for epoch in range(self.epochs):
            seed = derive(rows.seed, "epoch", epoch)
            loss = descent.epoch(rows.stay, descent.loss, seed=seed, augment=True)
            tell(epoch + 1, self.epochs, loss)
        return Step(descent.weights, descent.work, descent.notes(self.epochs))

    def _passes(self) -> Passes:
        return Passes(self.epochs, self.learning_rate, self.batch_size)
