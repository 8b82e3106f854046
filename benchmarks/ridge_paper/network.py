"""A small convolutional network on base samples, frozen before any erasable row is seen.

ACU's setting (appendix E.1): base samples, CL samples and test samples are disjoint, and
training augments by random crops and flips. The features are cached by a digest of all
that determines them.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels

try:
    import torch
    from torch import Tensor, nn
except ImportError as missing:
    raise click.ClickException(
        "features of colour images need torch: install the extra `torch`, or name other files"
    ) from missing

VERSION = 1  # of everything below: part of the cache's name
SEED, BATCH, RATE, DECAY = 0, 128, 0.05, 5e-4
CHANNELS = (32, 64, 128)
FEATURES = CHANNELS[-1] * 4  # 2 x 2 places of the last map

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """images (n, 32, 32, 3) uint8 and their labels (n,) int64."""

    images: Bytes
    labels: Labels


def network_features(
    base: Images, wanted: list[Bytes], *, epochs: int, cache: Path
) -> list[NDArray[np.float32]]:
    """Return features (n, FEATURES) float32 of each of `wanted`, from cache if they are.

    The network is trained on `base` alone, for so many epochs.
    """
    file = cache / f"features-{_digest(base, wanted, epochs)}.npz"
    if file.exists():
        with np.load(file, allow_pickle=False) as archive:
            return [archive[f"part{i}"] for i in range(len(wanted))]
    click.echo(f"training the network on {len(base.labels)} images, {epochs} epochs")
    body = _train(base, epochs)
    parts = [_extract(body, images) for images in wanted]
    cache.mkdir(parents=True, exist_ok=True)
    named: dict[str, Any] = {f"part{i}": part for i, part in enumerate(parts)}
    np.savez(file, **named)
    return parts


def _body() -> nn.Sequential:
    layers: list[nn.Module] = []
    before = 3
    for channels in CHANNELS:
        layers += [
            nn.Conv2d(before, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        before = channels
    return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten())


def _train(base: Images, epochs: int) -> nn.Sequential:
    torch.manual_seed(SEED)
    body = _body()
    classes = int(base.labels.max()) + 1
    model = nn.Sequential(body, nn.Dropout(0.2), nn.Linear(FEATURES, classes))
    images, labels = _tensor(base.images), torch.from_numpy(base.labels)
    optimiser = torch.optim.SGD(
        model.parameters(), RATE, momentum=0.9, weight_decay=DECAY, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    model.train()
    for _ in range(epochs):
        for part in torch.split(torch.randperm(len(labels)), BATCH):
            loss = nn.functional.cross_entropy(model(_augment(images[part])), labels[part])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        schedule.step()
    return body.eval()


def _augment(images: Tensor) -> Tensor:
    """Return the images flipped and shifted by up to four pixels, one draw a batch."""
    flips = torch.rand(len(images)) < 0.5
    images = torch.where(flips[:, None, None, None], images.flip(3), images)
    padded = nn.functional.pad(images, (4, 4, 4, 4))
    down, right = (int(shift) for shift in torch.randint(0, 9, (2,)))
    return padded[:, :, down : down + 32, right : right + 32]


def _extract(body: nn.Sequential, images: Bytes) -> NDArray[np.float32]:
    with torch.inference_mode():
        parts = [body(_tensor(images[i : i + 500])) for i in range(0, len(images), 500)]
    features: NDArray[np.float32] = torch.cat(parts).numpy()
    return features


def _tensor(images: Bytes) -> Tensor:
    """Return (n, 3, 32, 32) float32 in about [-2, 2]."""
    return (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.5) * 4


def _digest(base: Images, wanted: list[Bytes], epochs: int) -> str:
    digest = hashlib.sha256(f"{VERSION} {SEED} {CHANNELS} {epochs}".encode())
    for array in (base.images, base.labels, *wanted):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
