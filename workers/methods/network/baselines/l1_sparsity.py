"""L1-Sparsity: finetune under γ‖w‖₁, with γ decaying linearly to 0.

Source: Jia et al., "Model Sparsity Can Simplify Machine Unlearning", NeurIPS 2023, the
sparsity-aware unlearning of its section 4. The authors' code (OPTML-Group/Unlearn-Sparse)
decays by epochs, (1 - epoch / epochs) γ, so that its last epoch still runs under γ / epochs
unless epochs without a penalty are requested. Here γ decays by steps, and the last step has
none. The paper itself was not available, γ is lost in ACU's text, and 5e-4 is from no paper:
on a SimpleCNN and digits it cost nothing, and ten times as much 1.2 points of test accuracy.
"""

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import torch

from workers.errors import RefusedError
from workers.methods.network.base import Need, UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Pool, Tell
from workers.methods.network.baselines.descent import Batch, Descent, DescentMethod
from workers.methods.network.recovery import Step
from workers.training.fedavg.seeds import derive


@method("l1-sparsity")
@dataclass(frozen=True, slots=True)
class L1Sparsity(DescentMethod):
    """Minibatch steps on the retained rows; penalty is γ before the first step.

    Raises RefusedError for a value out of range.
    """

    id: ClassVar[str] = "l1-sparsity"
    needs: ClassVar[frozenset[Need]] = frozenset()  # no target client
    pools: ClassVar[frozenset[Pool]] = frozenset({"retained"})  # the retained rows
    penalty: float = 5e-4

    def __post_init__(self) -> None:
        DescentMethod.__post_init__(self)
        if not (isfinite(self.penalty) and self.penalty >= 0):
            raise RefusedError("penalty: must be a number, 0 or more")

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs. Raises RefusedError for a single step."""
        descent = Descent(case, self.passes(), rows.device)
        steps = self.epochs * -(-len(rows.retained_rows) // descent.config.batch_size)
        if steps < 2:
            raise RefusedError("a penalty cannot decay in one step: ask for more epochs")

        def loss(batch: Batch) -> torch.Tensor:
            size = torch.stack([w.abs().sum() for w in descent.module.parameters()]).sum()
            return descent.loss(batch) + decayed(self.penalty, descent.steps, steps) * size

        for epoch in range(self.epochs):
            seed = derive(rows.seed, "epoch", epoch)
            mean = descent.epoch(rows.retained_rows, loss, seed=seed, augment=True)
            tell(epoch + 1, self.epochs, mean)
        notes = {"l1.penalty": f"{self.penalty:.6g}", **descent.notes(self.epochs)}
        return Step(descent.weights, descent.work, notes)


def decayed(penalty: float, step: int, steps: int) -> float:
    """Return γ of a step 0, …, steps - 1: all of it at the first, exactly 0 at the last."""
    return penalty * (1 - step / (steps - 1))
