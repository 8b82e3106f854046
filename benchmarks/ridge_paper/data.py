"""Data files as tasks: federations of features, MNIST-like images, CIFAR-like images.

    features, labels, clients         a federation, as `lethe demo --data` takes it
    train_images (n, 28, 28) uint8    grey images: random ReLU features of the pixels
    train_images (n, 32, 32, 3) uint8 colour images: features of a small network that was
                                      trained on rows set aside for it (`network.py`)

Images come with train_labels, test_images and test_labels, as torchvision has them.
"""

from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.ridge_paper.task import HeadTask, make_task
from workers.arrays import Labels
from workers.data.digits import load_digits
from workers.data.extractors.random_relu import RandomRelu
from workers.data.federation import Federation
from workers.data.npz import load_npz
from workers.methods.ridge.statistics.quantiser import Features

IMAGES = {"train_images", "train_labels", "test_images", "test_labels"}
WIDTH = 768  # of random features: the width of the ridge paper's backbones
CONTRAST = 3.0  # brings projected pixels to about unit variance
BASE_SHARE = 1 / 3  # of the colour images, set aside to train the network on
QUICK_ROWS = 3000


def load(paths: list[Path], quick: bool, cache: Path) -> list[HeadTask]:
    """Return a task for each file, or for each .npz in a directory; digits for no path.

    Raises click.ClickException, naming the file, for one of another kind.
    """
    if not paths:
        return [digits(128 if quick else 256)]
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("*.npz")) if path.is_dir() else [path])
    ]
    if not files:
        raise click.ClickException("--data: no .npz file there")
    return [read(file, quick, cache) for file in files]


def read(file: Path, quick: bool, cache: Path) -> HeadTask:
    """Return the task in a file; its kind is told by the arrays. Raises as `load`."""
    with np.load(file, allow_pickle=False) as archive:
        names = set(archive.files)
        if not names >= IMAGES:
            return from_federation(file.stem, load_npz(file), quick)
        arrays = {name: archive[name] for name in IMAGES}
    shape = arrays["train_images"].shape[1:]
    if quick:
        arrays = {name: array[: _quick_rows(name)] for name, array in arrays.items()}
    if len(shape) == 2:
        return grey_images(file.stem, arrays, 256 if quick else WIDTH)
    if len(shape) == 3 and shape[2] == 3:
        return colour_images(file.stem, arrays, quick, cache)
    raise click.ClickException(f"{file.name}: images must be (n, h, w) or (n, h, w, 3)")


def digits(width: int) -> HeadTask:
    """Return scikit-learn's digits with random features: data that is always there."""
    data = load_digits()
    extractor = RandomRelu(data.features.shape[1], width, 0, 1 / 16)
    features, held = extractor.extract(data.features), data.is_test
    return make_task(
        "digits",
        f"8x8 digits of scikit-learn, {width} random ReLU features of seed 0",
        (features[~held], data.labels[~held]),
        (features[held], data.labels[held]),
        len(data.label_names),
    )


def from_federation(name: str, data: Federation, quick: bool) -> HeadTask:
    """Return the task of features that have natural clients; held-out rows are the test."""
    train, test = np.flatnonzero(~data.is_test), np.flatnonzero(data.is_test)
    if quick:
        train, test = train[:QUICK_ROWS], test[: QUICK_ROWS // 5]
    clients = data.clients[train]
    return make_task(
        name,
        f"given features, {len(set(clients.tolist()))} natural clients",
        (data.features[train], data.labels[train]),
        (data.features[test], data.labels[test]),
        len(data.label_names),
        clients,
    )


def grey_images(name: str, arrays: dict[str, NDArray[Any]], width: int) -> HeadTask:
    """Return pixels through a frozen random projection with ReLU, no training at all."""
    train, test = _pixels(arrays["train_images"]), _pixels(arrays["test_images"])
    extractor = RandomRelu(train.shape[1], width, 0, CONTRAST)
    return make_task(
        name,
        f"{width} random ReLU features of the pixels, seed 0",
        (extractor.extract(train).astype(np.float32), _labels(arrays["train_labels"])),
        (extractor.extract(test).astype(np.float32), _labels(arrays["test_labels"])),
        int(arrays["train_labels"].max()) + 1,
    )


def colour_images(
    name: str, arrays: dict[str, NDArray[Any]], quick: bool, cache: Path
) -> HeadTask:
    """Return features of a network trained on the first third, which is never federated."""
    # Torch is needed here and nowhere else.
    from benchmarks.ridge_paper.network import Images, network_features

    images, labels = arrays["train_images"], _labels(arrays["train_labels"])
    base = int(len(images) * BASE_SHARE)
    features = network_features(
        Images(images[:base], labels[:base]),
        [images[base:], arrays["test_images"]],
        epochs=2 if quick else 40,
        cache=cache,
    )
    return make_task(
        name,
        f"features of a small network trained on {base} other images, then frozen",
        (features[0], labels[base:]),
        (features[1], _labels(arrays["test_labels"])),
        int(labels.max()) + 1,
    )


def _quick_rows(name: str) -> int:
    return QUICK_ROWS if name.startswith("train") else QUICK_ROWS // 5


def _pixels(images: NDArray[Any]) -> Features:
    return images.reshape(len(images), -1).astype(np.float32) / 255


def _labels(array: NDArray[Any]) -> Labels:
    return array.astype(np.int64)
