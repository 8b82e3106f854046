"""NegGrad: gradient ascent on the rows to forget, and on nothing else.

Source: the baseline of Golatkar et al., "Eternal Sunshine of the Spotless Net", CVPR 2020;
ACU's appendix E.3 credits Thudi et al., "Unrolling SGD", EuroS&P 2022, and takes 5 epochs.
Its learning rate is lost in the available text: 1e-4 is what scripts for the code of Jia et
al. give to gradient ascent. Neither paper was available. The loss has no upper bound: at the
training's rate the model is soon destroyed. Weight decay still shrinks the weights.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from workers.methods.network.base import UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Pool, Tell
from workers.methods.network.baselines.descent import Batch, Descent, DescentMethod
from workers.methods.network.recovery import Step
from workers.training.fedavg.seeds import derive


@method("neg-grad")
@dataclass(frozen=True, slots=True)
class NegGrad(DescentMethod):
    """Minibatch steps up the loss of the rows to forget."""

    id: ClassVar[str] = "neg-grad"
    pools: ClassVar[frozenset[Pool]] = frozenset({"forget"})  # the rows to forget
    epochs: int = 5
    learning_rate: float | None = 1e-4

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs."""
        descent = Descent(case, self.passes(), rows.device)

        def loss(batch: Batch) -> torch.Tensor:
            return -descent.loss(batch)

        for epoch in range(self.epochs):
            mean = descent.epoch(rows.forget_rows, loss, seed=derive(rows.seed, "epoch", epoch))
            tell(epoch + 1, self.epochs, mean)
        return Step(descent.weights, descent.work, descent.notes(self.epochs))
