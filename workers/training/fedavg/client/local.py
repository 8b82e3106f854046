"""A client's training in a round: the ClientOpt of PUF's Algorithm 1.

The steps of SGD, Adam and AdamW are torch's own arithmetic, without importing its compiler. The
classes of `torch.optim` import torch._dynamo when they are first used, only to exclude
themselves from compilation. That takes three times as long as importing torch, in every process
that trains: a silo, a worker, each demonstration. The functions called here are those that the
classes call, so the bits are the same.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from math import ceil
from typing import Literal, Self

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask, check_data
from workers.training.fedavg.client.flops import training_flops
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.evaluate import loss_of
from workers.training.fedavg.seeds import stream
from workers.training.networks.weights import difference, weights_of, with_weights

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


def train_locally(
    task: RoundTask, data: ClientData, device: torch.device | str = "cpu"
) -> ClientUpdate:
    """Return the update of one client: a function of task, data and device alone.

    Run it inside `deterministic()` for equal bits. A diverging step yields an update with
    NaN, which the server drops as a fault. Raises RefusedError for weights or data that do
    not fit the network.
    """
    started = time.perf_counter()
    config = task.config
    module = with_weights(task.network, task.weights, device)
    check_data(task.network, data)
    if config.augment != "none" and data.inputs.ndim != 4:
        raise RefusedError("augment: only images can be cropped")
    steps = Steps.of(config, module, config.rate(task.round))
    augmented = stream(task.seed, "augment")
    inputs, targets = data.inputs.to(device), data.targets.to(device)

    def loss(at: torch.Tensor) -> torch.Tensor:
        batch = inputs[at]
        if config.augment == "crop-flip":
            batch = crop_flip(batch, augmented)
        return loss_of(config.loss, in_precision(config, module, batch), targets[at])

    flops = training_flops(task.network, config.loss)
    return update_of(task, module.train(), steps, loss, len(data), flops, started)


def in_precision(config: LocalConfig, module: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return a module's answer to a batch on its device, in the training's precision."""
    mixed = config.precision == "bfloat16"
    with torch.autocast(batch.device.type, torch.bfloat16, enabled=mixed):
        logits: torch.Tensor = module(batch)
    return logits


def update_of(
    task: RoundTask,
    module: nn.Module,
    steps: Steps,
    loss: Callable[[torch.Tensor], torch.Tensor],
    samples: int,
    flops: int,
    started: float,
    after: Callable[[nn.Module], bool] | None = None,
) -> ClientUpdate:
    """Return a client's update after one of `steps` for each of the task's batches.

    loss: of the rows with these indices (m,). flops: for each of them. started: by
    `time.perf_counter`. after: sees the weights after each step; True ends the training.
    """
    device = next(module.parameters()).device
    total = torch.zeros((), dtype=torch.float64, device=device)
    seen = taken = 0
    for at in batches(samples, task.config, task.seed, device):
        found = loss(at)
        steps.forget_gradients()
        found.backward()  # type: ignore[no-untyped-call]
        if task.config.clip_norm:
            nn.utils.clip_grad_norm_(module.parameters(), task.config.clip_norm)
        steps.step()
        total += found.detach().double() * len(at)
        seen, taken = seen + len(at), taken + 1
        if after is not None and after(module):
            break
    return ClientUpdate(
        round=task.round,
        client=task.client,
        base=task.base,
        delta=difference(weights_of(module), task.weights),
        samples=samples,
        steps=taken,
        loss=float(total) / seen,
        flops=seen * flops,
        seconds=time.perf_counter() - started,
    )


def batches(
    samples: int, config: LocalConfig, seed: int, device: torch.device | str = "cpu"
) -> Iterator[torch.Tensor]:
    """Yield the rows (m,) int64 of each step, m <= batch_size; every epoch in a new order.

    An epoch's order is copied to the device once: a copy at every step would wait for the
    previous step, longer than a small network's step takes on a GPU.
    """
    size = config.batch_size
    each = -(-samples // size)
    left = max(1, ceil(config.epochs * each))
    for epoch in range(ceil(left / each)):
        drawn = stream(seed, "order", epoch).permutation(samples)
        order = torch.from_numpy(drawn).to(device)
        for start in range(0, min(left, each) * size, size):
            yield order[start : start + size]
        left -= each


MARGIN = 4  # pixels of zeros on each side before the crop, as for CIFAR since He et al. 2016


def crop_flip(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Return images (n, c, h, w), each shifted by up to 4 pixels and perhaps mirrored."""
    n, _, height, width = images.shape
    padded = functional.pad(images, (MARGIN, MARGIN, MARGIN, MARGIN))
    top, left = rng.integers(0, 2 * MARGIN + 1, (2, n))
    mirror = rng.random(n) < 0.5
    rows = top[:, None] + np.arange(height)
    columns = left[:, None] + np.where(
        mirror[:, None], np.arange(width)[::-1], np.arange(width)
    )
    at = [torch.from_numpy(index).to(images.device) for index in (rows, columns)]
    picked = padded.permute(0, 2, 3, 1)[
        torch.arange(n, device=images.device)[:, None, None],
        at[0][:, :, None],
        at[1][:, None, :],
    ]
    return picked.permute(0, 3, 1, 2).contiguous()
