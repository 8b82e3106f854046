"""NegGrad+: down the loss of the retained rows and up that of the rows to forget, at once.

Source: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023:

    L(w) = β mean_R ℓ - (1 - β) mean_F ℓ

with β 0.95, 10 epochs and a rate of 0.01 in its small settings; ACU's appendix E.3 has the
first two. That rate took a SimpleCNN on digits (momentum 0.9) from 0.99 to 0.60 test
accuracy, a tenth of it did not: 0.001 is the default. With β 0.99 or more 0.01 was safe
there. Up to a scale of the rate the direction is ∇_R - α ∇_F with α = (1 - β) / β. Each step
takes one batch of each set; an epoch is a pass over the retained rows, and those to forget
come round as often as needed. That pairing is a choice: the paper was read in summaries only.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from workers.errors import RefusedError
from workers.methods.network.base import UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Tell
from workers.methods.network.baselines.descent import Batch, Descent, DescentMethod
from workers.methods.network.recovery import Step
from workers.training.fedavg.client.flops import training_flops
from workers.training.fedavg.seeds import derive


@method("neg-grad-plus")
@dataclass(frozen=True, slots=True)
class NegGradPlus(DescentMethod):
    """balance is β: 1 is Finetune, 0 NegGrad. Raises RefusedError for a value out of range."""

    id: ClassVar[str] = "neg-grad-plus"
    balance: float = 0.95
    learning_rate: float | None = 1e-3

    def __post_init__(self) -> None:
        DescentMethod.__post_init__(self)
        if not 0 <= self.balance <= 1:
            raise RefusedError("balance: must be a number from 0 to 1")

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs."""
        descent = Descent(case, self.passes(), rows.device)
        forget = descent.cycle(rows.forget_rows, seed=derive(rows.seed, "forget"))
        each = training_flops(case.network, descent.config.loss)

        def loss(batch: Batch) -> torch.Tensor:
            other = next(forget)
            descent.count(len(other[0]) * each)
            return self.balance * descent.loss(batch) - (1 - self.balance) * descent.loss(other)

        for epoch in range(self.epochs):
            seed = derive(rows.seed, "epoch", epoch)
            mean = descent.epoch(rows.retained_rows, loss, seed=seed, augment=True)
            tell(epoch + 1, self.epochs, mean)
        notes = {"neg-grad.balance": f"{self.balance:.6g}", **descent.notes(self.epochs)}
        return Step(descent.weights, descent.work, notes)
