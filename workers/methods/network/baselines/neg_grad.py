"""NegGrad: gradient ascent on the rows to forget, and on nothing else.

Source: the baseline of Golatkar et al., "Eternal Sunshine of the Spotless Net", CVPR 2020;
ACU's appendix E.3 credits Thudi et al., "Unrolling SGD", EuroS&P 2022, and takes 5 epochs. Its
learning rate is lost in the text at hand: 1e-4 is what scripts for the code of Jia et al. give
to gradient ascent. Neither paper was at hand. The loss has no upper bound: at
the rate of training the model is soon gone. Weight decay still shrinks the weights.
"""

from dataclasses import dataclass, field

import torch

from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Pool, Tell, unlearn
from workers.methods.network.baselines.descent import Batch, Descent, Passes
from workers.methods.network.recovery import Recovery, Step
from workers.training.fedavg.seeds import derive


@method("neg-grad")
@dataclass(frozen=True, slots=True)
class NegGrad:
    """Minibatch steps up the loss of the rows to forget."""

    epochs: int = 5
    learning_rate: float | None = 1e-4
    batch_size: int | None = None
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))

    def __post_init__(self) -> None:
        self._passes()

    @property
    def id(self) -> str:
        """The method's name."""
        return "neg-grad"

    @property
    def version(self) -> str:
        """The method's version."""
        return "1"

    @property
    def needs(self) -> frozenset[Need]:
        """Those who leave, once more."""
        return frozenset({"targets"})

    @property
    def pools(self) -> frozenset[Pool]:
        """The rows to forget."""
        return frozenset({"forget"})

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after the ascent. Raises as `central.unlearn`."""
        return unlearn(self, case, hooks)

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs."""
        descent = Descent(case, self._passes(), rows.device)

        def loss(batch: Batch) -> torch.Tensor:
            return -descent.loss(batch)

        for epoch in range(self.epochs):
            mean = descent.epoch(rows.leave, loss, seed=derive(rows.seed, "epoch", epoch))
            tell(epoch + 1, self.epochs, mean)
        return Step(descent.weights, descent.work, descent.notes(self.epochs))

    def _passes(self) -> Passes:
        return Passes(self.epochs, self.learning_rate, self.batch_size)
