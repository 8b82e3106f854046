"""Steps of SGD, Adam and AdamW: torch's own arithmetic, without importing its compiler.

The classes of `torch.optim` import torch._dynamo when they are first used, only to exclude
themselves from compilation. That takes three times as long as importing torch, in every
process that trains: a silo, a worker, each demonstration. The functions called here are those
that the classes call, so the bits are the same.
"""

from collections.abc import Iterable
from typing import Literal, Self

import torch
from torch import nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from workers.training.fedavg.config import LocalConfig

BETAS, EPSILON = (0.9, 0.999), 1e-8  # Kingma and Ba, 2015, algorithm 1; torch's defaults


class Steps:
    """Changes weights by their gradients, in place; a weight without one is unchanged.

    rate: the learning rate. momentum: for sgd only. decay: weight decay, decoupled for adamw.
    maximize: ascend the gradient.
    """

    def __init__(
        self,
        weights: Iterable[nn.Parameter],
        rate: float,
        *,
        kind: Literal["sgd", "adam", "adamw"] = "sgd",
        momentum: float = 0.0,
        decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        self._weights: list[torch.Tensor] = list(weights)
        self._rate, self._kind, self._momentum = rate, kind, momentum
        self._decay, self._maximize = decay, maximize
        self._momenta: dict[int, torch.Tensor | None] = {}
        self._moments: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    @classmethod
    def of(cls, config: LocalConfig, module: nn.Module, rate: float) -> Self:
        """Return the steps of a configured training."""
        return cls(
            module.parameters(),
            rate,
            kind=config.optimizer,
            momentum=config.momentum,
            decay=config.weight_decay,
        )

    def forget_gradients(self) -> None:
        """Remove the gradients, as `zero_grad` does."""
        for weight in self._weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take a step along the gradients that the weights have."""
        places = [place for place, one in enumerate(self._weights) if one.grad is not None]
        weights = [self._weights[place] for place in places]
        gradients = [one.grad for one in weights if one.grad is not None]
        if self._kind == "sgd":
            self._sgd(places, weights, gradients)
        else:
            self._adam(places, weights, gradients)

    def _sgd(
        self, places: list[int], weights: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None:
        # Empty without momentum, as torch's class passes it.
        momenta = [self._momenta.get(place) for place in places] if self._momentum else []
        sgd(
            weights,
            gradients,
            momenta,
            weight_decay=self._decay,
            momentum=self._momentum,
            lr=self._rate,
            dampening=0,
            nesterov=False,
            maximize=self._maximize,
        )
        self._momenta.update(zip(places, momenta, strict=False))

    def _adam(
        self, places: list[int], weights: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None:
        for place, weight in zip(places, weights, strict=True):
            if place not in self._moments:
                first, second = torch.zeros_like(weight), torch.zeros_like(weight)
                self._moments[place] = first, second, torch.tensor(0.0)  # steps so far
        moments = [self._moments[place] for place in places]
        adam(
            weights,
            gradients,
            [first for first, _, _ in moments],
            [second for _, second, _ in moments],
            [],
            [steps for _, _, steps in moments],
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self._rate,
            weight_decay=self._decay,
            eps=EPSILON,
            maximize=self._maximize,
            decoupled_weight_decay=self._kind == "adamw",
        )
