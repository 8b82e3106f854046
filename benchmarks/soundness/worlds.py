"""Settings in which networks are trained, unlearned and attacked: data, sizes, networks.

Rows belong to two clients by chance (digits: one client), and client 0 asks for the erasure
of some of its rows. Unseen rows are never trained on; spare ones are never tested on either:
they are what a provider may look at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

from workers.errors import RefusedError
from workers.training.networks.registry import network

Places = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], tuple[torch.Tensor, torch.Tensor]]

COLUMNS, CLASSES, RANDOM_LABELS, HIDDEN = 100, 4, 0.3, 128
WIDE, MANY = 140, 6
LEAST = 6600  # images of a file


@dataclass(frozen=True, slots=True)
class WorldSetting:
    """Sizes of one setting, in rows, and how its network is trained (Adam, batches of 64).

    powerful: whether models are expected to remember enough for a verdict. tested: how many
    forget rows each run draws; offered: how many unseen rows.
    """

    name: str
    about: str
    powerful: bool
    rows: int
    forget: int
    unseen: int
    spare: int
    tested: int
    offered: int
    clients: int
    epochs: int
    rate: float
    draw: Draw
    build: Callable[[int], nn.Module]


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """One draw of a setting. Places refer to inputs and labels, rows of every kind.

    The first `rows` of them are for training; the erased ones are among those.
    """

    setting: WorldSetting
    seed: int
    inputs: torch.Tensor
    labels: torch.Tensor
    clients: Places
    erased: Places
    retained: Places
    unseen: Places
    spare: Places

    def others(self) -> Places:
        """Return as many retained rows as were erased, of another client if there is one."""
        rng = np.random.default_rng([9, self.seed])
        theirs = self.retained[self.clients[self.retained] == self.setting.clients - 1]
        return rng.choice(theirs, len(self.erased), replace=False)


def make_world(setting: WorldSetting, seed: int) -> World:
    """Return a draw of a setting: data, dealing to clients and erased rows by the seed."""
    rng = np.random.default_rng([7, seed])
    total = setting.rows + setting.unseen + setting.spare
    inputs, labels = setting.draw(rng, total)
    clients = rng.integers(0, setting.clients, total)
    training = np.arange(setting.rows)
    own = training[clients[training] == 0]
    erased = np.sort(rng.choice(own, setting.forget, replace=False))
    held_out = np.arange(setting.rows, total)
    return World(
        setting,
        seed,
        inputs,
        labels,
        clients,
        erased,
        np.setdiff1d(training, erased),
        held_out[: setting.unseen],
        held_out[setting.unseen :],
    )


def memorising() -> WorldSetting:
    """Return the setting that needs no data: a wide layer learns random labels by heart."""

    def draw(rng: np.random.Generator, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
        labels = (inputs @ rng.normal(size=(COLUMNS, CLASSES))).argmax(axis=1)
        chance = rng.random(rows) < RANDOM_LABELS
        labels[chance] = rng.integers(0, CLASSES, int(chance.sum()))
        return torch.from_numpy(inputs), torch.from_numpy(labels)

    return WorldSetting(
        "memorising",
        f"{COLUMNS} normal columns, {CLASSES} classes by a linear rule, {RANDOM_LABELS:.0%} "
        f"of the labels drawn at random; one hidden layer of {HIDDEN}, 15 epochs",
        True, 2400, 600, 2000, 600, 500, 1600, 2, 15, 2e-3, draw,
        lambda seed: layers(seed, COLUMNS, HIDDEN, CLASSES),
    )  # fmt: skip


def faint() -> WorldSetting:
    """Return the setting at the edge of power: half of what `memorising` has to be found.

    Nothing is random but the rows. The model knows them all by heart, and most unseen ones.
    """

    def draw(rng: np.random.Generator, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = rng.normal(size=(rows, WIDE)).astype(np.float32)
        labels = (inputs @ rng.normal(size=(WIDE, MANY))).argmax(axis=1)
        return torch.from_numpy(inputs), torch.from_numpy(labels)

    return WorldSetting(
        "faint",
        f"{WIDE} normal columns, {MANY} classes by a linear rule; one hidden layer of "
        f"{HIDDEN}, 14 epochs",
        True, 4000, 1640, 6560, 600, 1590, 5904, 1, 14, 2e-3, draw,
        lambda seed: layers(seed, WIDE, HIDDEN, MANY),
    )  # fmt: skip


def digits() -> WorldSetting:
    """Return the setting without power: scikit-learn's digits, hardly learned by heart."""
    data = load_digits()
    images = torch.from_numpy((data.data / 16).astype(np.float32))
    return WorldSetting(
        "digits",
        "scikit-learn's digits, 8 × 8; one hidden layer of 64, 20 epochs",
        False, 900, 420, 797, 100, 400, 717, 1, 20, 2e-3,
        given(images, torch.from_numpy(data.target.astype(np.int64))),
        lambda seed: layers(seed, 64, 64, 10),
    )  # fmt: skip


def pictures(path: Path) -> WorldSetting:
    """Return the setting of the images of an .npz file: colour has power, grey has none.

    It has train_images, (n, 32, 32, 3) or (n, 28, 28) uint8, and train_labels, and may have
    test_images and test_labels. All are pooled and dealt anew, at half their size (means of
    2 × 2 pixels). Raises RefusedError for other arrays or too few rows.
    """
    with np.load(path) as file:
        kinds = [kind for kind in ("train", "test") if f"{kind}_images" in file]
        if not kinds:
            raise RefusedError("the file has no train_images: see docs/benchmarks/soundness.md")
        images = np.concatenate([file[f"{kind}_images"] for kind in kinds])
        labels = np.concatenate([file[f"{kind}_labels"] for kind in kinds]).astype(np.int64)
    if images.shape[1:] not in ((32, 32, 3), (28, 28)) or len(images) < LEAST:
        raise RefusedError(
            f"images must be (n, 32, 32, 3) or (n, 28, 28), at least {LEAST:,} of them"
        )
    side, colour = images.shape[1] // 2, images.ndim == 4
    pixels = images.reshape(len(images), side, 2, side, 2, -1).astype(np.float32)
    small = pixels.mean(axis=(2, 4)) / 255
    inputs = torch.from_numpy((small - small.mean()) / small.std()).permute(0, 3, 1, 2)
    shape = {"channels": inputs.shape[1], "height": side, "width": side}
    cnn = network("simple-cnn", {**shape, "classes": int(labels.max()) + 1})
    epochs = 30 if colour else 10
    return WorldSetting(
        path.stem,
        f"{path.stem}, halved to {side} × {side}; simple-cnn, {epochs} epochs",
        colour, 3000, 600, 3000, 600, 500, 2400, 2, epochs, 1e-3,
        given(inputs.contiguous(), torch.from_numpy(labels)),
        cnn.build,
    )  # fmt: skip


def given(inputs: torch.Tensor, labels: torch.Tensor) -> Draw:
    """Return what draws rows of a data set without replacement."""

    def draw(rng: np.random.Generator, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.from_numpy(rng.choice(len(labels), rows, replace=False))
        return inputs[chosen], labels[chosen]

    return draw


def layers(seed: int, *widths: int) -> nn.Module:
    """Return a perceptron of these widths, its weights from a torch generator of the seed."""
    parts: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for inside, outside in pairwise(widths):
            parts += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def settings(data: Sequence[Path]) -> list[WorldSetting]:
    """Return the settings to be measured: three without data, then one for each file."""
    return [memorising(), faint(), digits(), *(pictures(path) for path in data)]
