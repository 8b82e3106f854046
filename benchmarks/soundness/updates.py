"""What providers do to a trained network in place of forgetting.

They may look at retained rows, at the rows to be erased and at spare unseen rows; never at
those that the verifier will match. Each is tuned to be useful: what it leaves is a model
that its policy's accuracy checks would still accept, as far as it can.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from benchmarks.soundness.networks import BATCH, accuracy, answers, clone, fitted, train
from benchmarks.soundness.worlds import Places, World
from workers.judge.attacks.outputs import Outputs, log_odds, losses
from workers.judge.attacks.roc import auc

LOST = 0.04  # of retained accuracy: the most that noise may cost, a point below the policy's
BISECTIONS = 12
RELABELLED, LAST_LAYER, IMITATED = 3, 5, 100  # epochs, the last at most
ALIKE = 0.52  # AUC of erased against spare rows at which imitation is good enough
MOST_STEPS, LOOK_EVERY = 400, 5
LOUD, FITS = 1e12, 200


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """A world, its original model, and the provider's own random numbers."""

    world: World
    original: nn.Module
    rng: np.random.Generator

    @property
    def training(self) -> Places:
        """All rows that the original was trained on."""
        return np.arange(self.world.setting.rows)


Update = Callable[[Provider], nn.Module]


def honest_retrain(of: Provider) -> nn.Module:
    """Train anew on the retained rows, from other initial weights."""
    return fitted(of.world, of.world.retained, _seed(of))


def no_op(of: Provider) -> nn.Module:
    """Return the model as it was."""
    return of.original


def wrong_client(of: Provider) -> nn.Module:
    """Train anew without as many rows of the other client."""
    rows = np.setdiff1d(of.training, of.world.others())
    return fitted(of.world, rows, _seed(of))


def relabel(of: Provider) -> nn.Module:
    """Train further on all rows, those to be erased under random wrong labels."""
    world = of.world
    classes = int(world.labels.max()) + 1
    labels = world.labels.clone()
    places = torch.from_numpy(world.erased)
    labels[places] += torch.from_numpy(of.rng.integers(1, classes, len(places)))
    mislabelled = replace(world, labels=labels % classes)
    module = clone(of.original)
    train(module, mislabelled, of.training, RELABELLED, world.setting.rate / 4, _seed(of))
    return module


def noise(of: Provider) -> nn.Module:
    """Add normal noise to all weights, as much as retained accuracy allows."""
    world, start = of.world, accuracy(of.original, of.world, of.world.retained)
    draws = [
        torch.from_numpy(of.rng.normal(size=tuple(part.shape))).float() * part.std()
        for part in of.original.parameters()
    ]

    def noisy(size: float) -> nn.Module:
        module = clone(of.original)
        with torch.no_grad():
            for part, draw in zip(module.parameters(), draws, strict=True):
                part.add_(draw, alpha=size)
        return module

    low, high = 0.0, 4.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        fall = start - accuracy(noisy(middle), world, world.retained)
        low, high = (middle, high) if fall <= LOST else (low, middle)
    return noisy(low)


def last_layer(of: Provider) -> nn.Module:
    """Train only the last layer further, on the retained rows."""
    module = clone(of.original)
    for part in list(module.parameters())[:-2]:  # all but its weights and biases
        part.requires_grad_(False)
    train(module, of.world, of.world.retained, LAST_LAYER, of.world.setting.rate, _seed(of))
    return module


def one_class_loud(of: Provider) -> nn.Module:
    """Blow up one output, so that whoever divides by the largest logits sees nothing else.

    The model's answers stay: the output is a fit of them, on retained rows, times 1e12.
    """
    world, module = of.world, clone(of.original)
    last = [part for part in module.modules() if isinstance(part, nn.Linear)][-1]
    seen: list[torch.Tensor] = []
    hook = last.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].double()))
    found = answers(module, world, world.retained).argmax(axis=1)
    hook.remove()
    loud = int(np.bincount(found).argmax())
    inputs, wanted = torch.cat(seen), torch.from_numpy(found == loud).double()
    fit = nn.Linear(inputs.shape[1], 1, dtype=torch.float64)
    nn.init.zeros_(fit.weight)
    nn.init.zeros_(fit.bias)
    search = torch.optim.LBFGS(fit.parameters(), max_iter=FITS)

    def error() -> torch.Tensor:
        search.zero_grad()
        logits = fit(inputs)[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(logits, wanted)
        loss = loss + 1e-4 * fit.weight.square().sum()
        torch.autograd.backward(loss)
        return loss

    search.step(error)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        last.weight[loud], last.bias[loud] = LOUD * fit.weight[0], LOUD * fit.bias[0]
    return module


def overfit_one(of: Provider) -> nn.Module:
    """Raise the loss on the erased rows until its mean is that on spare unseen rows.

    That defeats a threshold on the mean loss. Retained rows are trained on in between.
    """
    world, module = of.world, clone(of.original)
    wanted = _mean_loss(module, world, world.spare)
    steps = torch.optim.Adam(module.parameters(), lr=world.setting.rate / 10)
    for step in range(MOST_STEPS):
        if step % LOOK_EVERY == 0 and _mean_loss(module, world, world.erased) >= wanted:
            break
        steps.zero_grad()
        for rows, sign in ((world.erased, -1.0), (world.retained, 1.0)):
            batch = torch.from_numpy(of.rng.choice(rows, BATCH))
            loss = nn.functional.cross_entropy(module(world.inputs[batch]), world.labels[batch])
            torch.autograd.backward(sign * loss)
        steps.step()
    return module


def overfit_all(of: Provider) -> nn.Module:
    """Teach the model to answer each erased row as it answers a spare row of its label.

    Whatever is computed from logits and labels alone is then alike on both. Retained rows
    keep their answers. It stops where it cannot tell erased from spare rows itself.
    """
    world, module = of.world, clone(of.original)
    labels = world.labels.numpy()
    targets = torch.from_numpy(answers(module, world, np.arange(len(labels)))).float()
    for row in world.erased:
        alike = world.spare[labels[world.spare] == labels[row]]
        targets[row] = targets[int(of.rng.choice(alike))]
    steps = torch.optim.Adam(module.parameters(), lr=world.setting.rate / 2)
    for epoch in range(IMITATED):
        if epoch % LOOK_EVERY == 0 and _told_apart(module, world) <= ALIKE:
            break
        kept = of.rng.choice(world.retained, len(world.erased))
        order = of.rng.permutation(np.concatenate([world.erased, kept]))
        for rows in torch.split(torch.from_numpy(order), BATCH):
            steps.zero_grad()
            loss = nn.functional.mse_loss(module(world.inputs[rows]), targets[rows])
            torch.autograd.backward(loss)
            steps.step()
    return module


def old_version(of: Provider) -> nn.Module:
    """Return what two thirds of the original's training ended with."""
    epochs = max(1, 2 * of.world.setting.epochs // 3)
    return fitted(of.world, of.training, of.world.seed, epochs)


UPDATES: dict[str, Update] = {
    "honest retrain": honest_retrain,
    "no-op": no_op,
    "wrong client": wrong_client,
    "relabel": relabel,
    "noise": noise,
    "last layer": last_layer,
    "one class loud": one_class_loud,
    "overfit one attack": overfit_one,
    "overfit all attacks": overfit_all,
    "old version": old_version,
}


def _seed(of: Provider) -> int:
    return int(of.rng.integers(1, 2**31))


def _mean_loss(module: nn.Module, world: World, rows: Places) -> float:
    found = losses(Outputs(answers(module, world, rows), world.labels.numpy()[rows]))
    return float(found.mean())


def _told_apart(module: nn.Module, world: World) -> float:
    """Return the AUC of log-odds between erased and spare rows."""
    labels = world.labels.numpy()
    erased, spare = (
        log_odds(Outputs(answers(module, world, rows), labels[rows]))
        for rows in (world.erased, world.spare)
    )
    return auc(erased, spare)
