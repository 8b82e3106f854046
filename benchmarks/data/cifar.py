"""CIFAR-10 and CIFAR-100 as their authors publish them: folders of Python pickles.

Source: cs.toronto.edu/~kriz/cifar.html. Each row is 3,072 bytes: 1,024 red, then green,
then blue, each plane row by row.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.plain_pickle import read_pickle
from workers.data.images import LabelledImages, numbered
from workers.errors import DatasetError

SIDE = 32


def load_cifar(folder: Path, *, coarse: bool = False) -> LabelledImages:
    """Return the images of a folder cifar-10-batches-py or cifar-100-python.

    coarse takes CIFAR-100's 20 superclasses. Nothing in the files is executed.
    Raises DatasetError for a folder with neither, and for damaged files.
    """
    if (folder / "train").is_file():
        files, key = [("train", False), ("test", True)], "fine_labels"
        meta, names_key = folder / "meta", "fine_label_names"
        if coarse:
            key, names_key = "coarse_labels", "coarse_label_names"
    else:
        batches = sorted(path.name for path in folder.glob("data_batch_*"))
        files, key = [*((name, False) for name in batches), ("test_batch", True)], "labels"
        meta, names_key = folder / "batches.meta", "label_names"
        if not batches or coarse:
            raise DatasetError("the folder holds no CIFAR-10 or CIFAR-100, as asked for")
    found = [(*_batch(folder / name, key), test) for name, test in files]
    labels = np.concatenate([part for _, part, _ in found])
    return LabelledImages(
        images=np.concatenate([part for part, _, _ in found]),
        labels=labels,
        label_names=_names(meta, names_key) if meta.exists() else numbered(labels),
        is_test=np.concatenate([np.full(len(part), test) for _, part, test in found]),
    )


def _batch(path: Path, key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = _fields(path)
    data, labels = batch.get("data"), batch.get(key)
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != 3 * SIDE * SIDE:
        raise DatasetError("data: must be rows of 3,072 bytes")
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if not isinstance(labels, list) or any(type(label) is not int for label in labels):
        raise DatasetError(f"{key}: must be a list of integers")
    if len(labels) != len(data) or not all(0 <= label < 1 << 20 for label in labels):
        raise DatasetError(f"{key}: must be one class for each row of data")
    planes = data.reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), np.array(labels, dtype=np.int64)


def _names(path: Path, key: str) -> tuple[str, ...]:
    names = _fields(path).get(key)
    if not isinstance(names, list) or not names:
        raise DatasetError(f"{key}: must be a list of names")
    return tuple(_text(name) for name in names)


def _fields(path: Path) -> dict[str, Any]:
    """Return a file's dictionary, whose keys Python 2 wrote as bytes."""
    batch = read_pickle(path)
    if not isinstance(batch, dict):
        raise DatasetError("the pickle is no CIFAR batch: it holds no dictionary")
    return {_text(key): value for key, value in batch.items()}


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise DatasetError("the pickle is no CIFAR batch: a name is no text")
    return value
