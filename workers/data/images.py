"""The result of the image readers: the files' arrays, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels
from workers.data.identities import Column, check_column
from workers.errors import DatasetError

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """images (n, height, width, channels) uint8; labels (n,) int64 into label_names.

    is_test (n,) marks the rows that the data set holds out. clients (n,) str are the rows'
    sources, subjects (n,) str their persons within a client, if the data set has them.
    identities: by kind, as in `Federation`. Raises DatasetError, naming the array.
    """

    images: Pixels
    labels: Labels
    label_names: tuple[str, ...]
    is_test: NDArray[np.bool_]
    clients: NDArray[np.str_] | None = None
    subjects: NDArray[np.str_] | None = None
    identities: Mapping[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_pixels(self.images)
        _check_rows(
            self.images,
            labels=self.labels,
            is_test=self.is_test,
            clients=self.clients,
            subjects=self.subjects,
        )
        _check_labels(self.labels, self.label_names)
        for kind, column in self.identities.items():
            check_column(kind, column, len(self.images))


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedImages:
    """images (n, h, w, c) uint8; masks (n, h, w) int64, a class of each pixel; clients (n,).

    names (n,) are the file names, relative to the folder. Raises DatasetError.
    """

    images: Pixels
    masks: NDArray[np.int64]
    clients: NDArray[np.str_]
    names: NDArray[np.str_]
    classes: int

    def __post_init__(self) -> None:
        _check_pixels(self.images)
        _check_rows(self.images, clients=self.clients, names=self.names)
        if self.masks.shape != self.images.shape[:3] or self.masks.dtype != np.int64:
            raise DatasetError("masks: must have one class for each pixel of each image")
        if self.masks.min() < 0 or self.masks.max() >= self.classes:
            raise DatasetError(f"masks: a pixel has a class outside 0 to {self.classes - 1}")


def _check_pixels(images: Pixels) -> None:
    if images.ndim != 4 or images.dtype != np.uint8 or 0 in images.shape:
        raise DatasetError("images: must be (n, height, width, channels) bytes, not empty")


def _check_rows(rows: np.ndarray, **columns: NDArray[np.generic] | None) -> None:
    for name, column in columns.items():
        if column is not None and column.shape != (len(rows),):
            raise DatasetError(f"{name}: must hold exactly one entry for each row")


def _check_labels(labels: Labels, names: tuple[str, ...]) -> None:
    if labels.dtype != np.int64:
        raise DatasetError("labels: must be int64")
    if labels.min() < 0 or labels.max() >= len(names):
        raise DatasetError(
            f"labels: one has no name: labels count from 0, and label_names has {len(names)}"
        )


def numbered(labels: Labels) -> tuple[str, ...]:
    """Return names for classes without any: their numbers, up to the largest label."""
    if len(labels) == 0 or labels.min() < 0 or labels.max() >= 1 << 20:
        raise DatasetError("labels: must count from 0")
    return tuple(str(label) for label in range(int(labels.max()) + 1))
