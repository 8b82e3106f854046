"""Training and answers of the networks under attack, on one thread."""

import copy

import numpy as np
import torch
from torch import nn

from benchmarks.soundness.worlds import Places, World
from workers.arrays import Matrix

BATCH = 64


def fitted(world: World, rows: Places, seed: int, epochs: int | None = None) -> nn.Module:
    """Return a network trained from its initial weights, as long as its setting says."""
    module, setting = world.setting.build(seed), world.setting
    train(module, world, rows, epochs or setting.epochs, setting.rate, seed)
    return module


def train(
    module: nn.Module, world: World, rows: Places, epochs: int, rate: float, seed: int
) -> None:
    """Train what of a module requires gradients further: Adam, batches of 64."""
    inputs, labels = world.inputs[torch.from_numpy(rows)], world.labels[torch.from_numpy(rows)]
    order = torch.Generator().manual_seed(seed)
    parts = [part for part in module.parameters() if part.requires_grad]
    steps = torch.optim.Adam(parts, lr=rate)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(rows), generator=order), BATCH):
            steps.zero_grad()
            loss = nn.functional.cross_entropy(module(inputs[batch]), labels[batch])
            torch.autograd.backward(loss)
            steps.step()


def clone(module: nn.Module) -> nn.Module:
    """Return a copy that can be trained on its own."""
    return copy.deepcopy(module)


def answers(module: nn.Module, world: World, rows: Places) -> Matrix:
    """Return logits (m, classes) float64 on some rows."""
    with torch.no_grad():
        chosen = world.inputs[torch.from_numpy(rows)]
        parts = [module(part) for part in torch.split(chosen, 1024)]
    found: Matrix = torch.cat(parts).double().numpy()
    return found


def accuracy(module: nn.Module, world: World, rows: Places) -> float:
    """Return the share of rows whose largest logit is the label's."""
    right = answers(module, world, rows).argmax(axis=1) == world.labels.numpy()[rows]
    return float(np.mean(right))
