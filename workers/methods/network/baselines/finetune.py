"""Finetune: train on with the retained rows, and let the rest be forgotten by itself.

Source: the baseline of Golatkar et al., "Eternal Sunshine of the Spotless Net", CVPR 2020,
which builds on catastrophic forgetting. ACU's appendix E.3 credits Warnecke et al., "Machine
Unlearning of Features and Labels", NDSS 2023, and trains 10 epochs; its learning rate is lost
in the available text, so the training's own is the default. Neither paper was available.
"""

from dataclasses import dataclass
from typing import ClassVar

from workers.methods.network.base import Need, UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Pool, Tell
from workers.methods.network.baselines.descent import Descent, DescentMethod
from workers.methods.network.recovery import Step
from workers.training.fedavg.seeds import derive


@method("finetune")
@dataclass(frozen=True, slots=True)
class Finetune(DescentMethod):
    """Ordinary minibatch steps. It never sees a row to forget or its client."""

    id: ClassVar[str] = "finetune"
    needs: ClassVar[frozenset[Need]] = frozenset()  # no target client
    pools: ClassVar[frozenset[Pool]] = frozenset({"retained"})  # the retained rows

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs."""
        descent = Descent(case, self.passes(), rows.device)
        for epoch in range(self.epochs):
            seed = derive(rows.seed, "epoch", epoch)
            loss = descent.epoch(rows.retained_rows, descent.loss, seed=seed, augment=True)
            tell(epoch + 1, self.epochs, loss)
        return Step(descent.weights, descent.work, descent.notes(self.epochs))
