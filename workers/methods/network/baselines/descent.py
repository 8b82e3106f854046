"""Minibatch steps on one copy of a model, for losses that a federated round cannot carry.

Batches, optimiser, weight decay, clipping and precision are the training's, so that two
baselines differ in their loss alone. Augmentation is for retained rows, never for those to
forget, as in PUF's section V-A.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import ClassVar

import torch
from torch import nn

from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase
from workers.methods.network.baselines.central import Gathered, Pool, Tell, unlearn
from workers.methods.network.recovery import Recovery, Step
from workers.training.fedavg.base import ClientData, Work
from workers.training.fedavg.client.flops import training_flops
from workers.training.fedavg.client.local import Steps, batches, crop_flip
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.errors import DivergedError
from workers.training.fedavg.evaluate import loss_of
from workers.training.fedavg.seeds import derive, stream
from workers.training.networks.weights import Weights, weights_of, with_weights

Batch = tuple[torch.Tensor, torch.Tensor]  # inputs (m, ...), targets (m, ...) on the device
Loss = Callable[[Batch], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Passes:
    """epochs over the rows; learning_rate and batch_size None: those at the end of training.

    Raises RefusedError for a value out of range.
    """

    epochs: int
    learning_rate: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if type(self.epochs) is not int or not 1 <= self.epochs <= 10_000:
            raise RefusedError("epochs: must be an integer from 1 to 10000")
        self.local(LocalConfig(), 1)

    def local(self, config: LocalConfig, round: int) -> LocalConfig:
        """Return the configuration of one pass, at the rate of `round` where none is set."""
        rate = config.rate(round) if self.learning_rate is None else self.learning_rate
        size = config.batch_size if self.batch_size is None else self.batch_size
        return replace(config, epochs=1.0, learning_rate=rate, decay=1.0, batch_size=size)


@dataclass(frozen=True, slots=True)
class DescentMethod(ABC):
    """The common part of baselines that take minibatch steps over pooled rows.

    epochs, learning_rate and batch_size as `Passes`; none of the papers has recovery. Raises
    RefusedError for a value out of range.
    """

    id: ClassVar[str]
    version: ClassVar[str] = "1"
    needs: ClassVar[frozenset[Need]] = frozenset({"targets"})  # the target clients once more
    pools: ClassVar[frozenset[Pool]] = frozenset({"forget", "retained"})  # all rows
    epochs: int = 10
    learning_rate: float | None = None
    batch_size: int | None = None
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))

    def __post_init__(self) -> None:
        self.passes()

    def passes(self) -> Passes:
        """Return the epochs, with rate and batch size."""
        return Passes(self.epochs, self.learning_rate, self.batch_size)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after all epochs. Raises as `central.unlearn`."""
        return unlearn(self, case, hooks)

    @abstractmethod
    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs."""


class Descent:
    """A model between steps, its optimiser, and the work so far."""

    def __init__(
        self, case: UnlearningCase, passes: Passes, device: torch.device | str
    ) -> None:
        self.config = passes.local(case.config.local, case.config.rounds + 1)
        self.network, self.device = case.network, device
        self.module = with_weights(case.network, case.weights, device).train()
        self._optimiser = Steps.of(self.config, self.module, self.config.learning_rate)
        self.steps = self.flops = 0

    def epoch(self, rows: ClientData, loss: Loss, *, seed: int, augment: bool = False) -> float:
        """Take one step against `loss` for each batch; return its mean over the rows.

        The loss counts its own operations with `count`, except one gradient of each row of
        the batch. Raises DivergedError for a loss or weight that is not finite.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for batch in self.batches(rows, seed=seed, augment=augment):
            found = loss(batch)
            self._optimiser.forget_gradients()
            found.backward()  # type: ignore[no-untyped-call]
            if self.config.clip_norm:
                nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip_norm)
            self._optimiser.step()
            total += found.detach().double() * len(batch[0])
            self.steps += 1
            self.flops += len(batch[0]) * training_flops(self.network, self.config.loss)
        mean = float(total) / len(rows)
        whole = all(bool(torch.isfinite(part).all()) for part in self.module.parameters())
        if not isfinite(mean) or not whole:
            raise DivergedError(
                "the unlearning diverged and the model was left as it was: lower "
                "learning_rate, set clip_norm, or use puf-special or retrain"
            )
        return mean

    def batches(self, rows: ClientData, *, seed: int, augment: bool = False) -> Iterator[Batch]:
        """Yield every row once, in an order that the seed sets, on the device."""
        augmented = stream(seed, "augment")
        for at in batches(len(rows), self.config, seed):
            inputs = rows.inputs[at].to(self.device)
            if augment and self.config.augment == "crop-flip":
                if inputs.ndim != 4:
                    raise RefusedError("augment: only images can be cropped")
                inputs = crop_flip(inputs, augmented)
            yield inputs, rows.targets[at].to(self.device)

    def cycle(self, rows: ClientData, *, seed: int) -> Iterator[Batch]:
        """Yield batches without end, each pass over the rows in an order of its own."""
        turn = 0
        while True:
            yield from self.batches(rows, seed=derive(seed, "turn", turn))
            turn += 1

    def logits(self, inputs: torch.Tensor, module: nn.Module | None = None) -> torch.Tensor:
        """Return float32 logits of this model, or of another, in the training's precision."""
        mixed = self.config.precision == "bfloat16"
        with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=mixed):
            logits: torch.Tensor = (module or self.module)(inputs)
        return logits.float()

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the training's own loss of a batch."""
        return loss_of(self.config.loss, self.logits(batch[0]), batch[1])

    def count(self, flops: int) -> None:
        """Add operations beyond the one gradient of each row that `epoch` counts."""
        self.flops += flops

    @property
    def weights(self) -> Weights:
        """A copy of the weights as they are now."""
        return weights_of(self.module)

    @property
    def work(self) -> Work:
        """Steps and operations so far."""
        return Work(steps=self.steps, flops=self.flops)

    def notes(self, epochs: int) -> dict[str, str]:
        """Return the notes for a certificate."""
        return {
            "central.batch-size": str(self.config.batch_size),
            "central.epochs": str(epochs),
            "central.learning-rate": f"{self.config.learning_rate:.6g}",
        }
