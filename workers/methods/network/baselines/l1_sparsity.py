"""L1-Sparsity: finetune under γ‖w‖₁, with γ decaying linearly to 0.

Source: Jia et al., "Model Sparsity Can Simplify Machine Unlearning", NeurIPS 2023, the
sparsity-aware unlearning of its section 4. The authors' code (OPTML-Group/Unlearn-Sparse)
decays by epochs, (1 - epoch / epochs) γ, so that its last epoch still runs under γ / epochs
unless epochs without a penalty are asked for. Here γ decays by steps, and the last step has
none. The paper itself was not at hand, γ is lost in ACU's text, and 5e-4 is no paper's: on a
SimpleCNN and digits it cost nothing, and ten times as much 1.2 points of test accuracy.
"""

from dataclasses import dataclass, field
from math import isfinite

import torch

from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Pool, Tell, unlearn
from workers.methods.network.baselines.descent import Batch, Descent, Passes
from workers.methods.network.recovery import Recovery, Step
from workers.training.fedavg.seeds import derive


@method("l1-sparsity")
@dataclass(frozen=True, slots=True)
class L1Sparsity:
    """Minibatch steps on the rows that stay; penalty is γ before the first step.

    Raises RefusedError for a value out of range.
    """

    penalty: float = 5e-4
    epochs: int = 10
    learning_rate: float | None = None
    batch_size: int | None = None
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))

    def __post_init__(self) -> None:
        self._passes()
        if not (isfinite(self.penalty) and self.penalty >= 0):
            raise RefusedError("penalty: must be a number, 0 or more")

    @property
    def id(self) -> str:
        """The method's name."""
        return "l1-sparsity"

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
        """Return the model after all epochs. Raises as `central.unlearn`."""
        return unlearn(self, case, hooks)

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs. Raises RefusedError for a single step."""
        descent = Descent(case, self._passes(), rows.device)
        steps = self.epochs * -(-len(rows.stay) // descent.config.batch_size)
        if steps < 2:
            raise RefusedError("a penalty cannot decay in one step: ask for more epochs")

        def loss(batch: Batch) -> torch.Tensor:
            size = torch.stack([w.abs().sum() for w in descent.module.parameters()]).sum()
            return descent.loss(batch) + decayed(self.penalty, descent.steps, steps) * size

        for epoch in range(self.epochs):
            seed = derive(rows.seed, "epoch", epoch)
            mean = descent.epoch(rows.stay, loss, seed=seed, augment=True)
            tell(epoch + 1, self.epochs, mean)
        notes = {"l1.penalty": f"{self.penalty:.6g}", **descent.notes(self.epochs)}
        return Step(descent.weights, descent.work, notes)

    def _passes(self) -> Passes:
        return Passes(self.epochs, self.learning_rate, self.batch_size)


def decayed(penalty: float, step: int, steps: int) -> float:
    """Return γ of a step 0, …, steps - 1: all of it at the first, exactly 0 at the last."""
    return penalty * (1 - step / (steps - 1))
