"""LEAF's JSON files of FEMNIST: handwriting whose clients are the people who wrote it.

Source: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. A file has `users`,
`num_samples` and for each user `user_data` with rows `x` (784 numbers from 0 to 1, 28 x 28)
and `y` (a class of 62: digits, capitals, small letters).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.data.images import LabelledImages
from workers.errors import DatasetError

SIDE, CLASSES = 28, 62
LABEL_NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def load_leaf(train: Path, test: Path | None = None) -> LabelledImages:
    """Return FEMNIST with its writers as clients, sorted by name, rows in the files' order.

    train and test are a .json file each, or folders of them (read in order of name).
    Raises DatasetError naming the field at fault; a message names no writer.
    """
    pixels, labels, clients, held = [], [], [], []
    for source, is_test in ((train, False), (test, True)):
        if source is None:
            continue
        users: dict[str, list[tuple[NDArray[np.uint8], NDArray[np.int64]]]] = {}
        for path in _files(source):
            for user, rows in _users(path):
                users.setdefault(user, []).append(rows)
        for user in sorted(users):
            for images, classes in users[user]:
                pixels.append(images)
                labels.append(classes)
                clients += [user] * len(classes)
                held += [is_test] * len(classes)
    if not clients:
        raise DatasetError("users: the files hold no row")
    return LabelledImages(
        images=np.concatenate(pixels),
        labels=np.concatenate(labels),
        label_names=LABEL_NAMES,
        is_test=np.array(held),
        clients=np.array(clients),
    )


def _files(source: Path) -> list[Path]:
    files = sorted(source.glob("*.json")) if source.is_dir() else [source]
    if not files:
        raise DatasetError("the folder holds no .json file")
    return files


def _users(path: Path) -> list[tuple[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]]:
    try:
        document = json.loads(path.read_bytes())
        users, counts, data = (document[key] for key in ("users", "num_samples", "user_data"))
        if not isinstance(users, list) or len(set(users)) != len(users):
            raise DatasetError("users: must be a list of distinct names")
        if len(users) != len(counts) or set(users) != set(data):
            raise DatasetError("users, num_samples and user_data: must name the same users")
        found = []
        for user, count in zip(users, counts, strict=True):
            rows = _rows(data[user]["x"], data[user]["y"])
            if type(count) is not int or len(rows[1]) != count:
                raise DatasetError("num_samples: a user has another number of rows")
            if count:
                found.append((str(user), rows))
        return found
    except OSError:
        raise DatasetError("the LEAF file cannot be read") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise DatasetError("the file is no LEAF data: a field is missing or damaged") from None


def _rows(x: Any, y: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if not isinstance(y, list) or any(type(label) is not int for label in y):
        raise DatasetError("y: must be integers")
    labels = np.array(y, dtype=np.int64)
    if len(y) and not 0 <= labels.min() <= labels.max() < CLASSES:
        raise DatasetError(f"y: must be classes from 0 to {CLASSES - 1}")
    values = np.array(x if y else np.empty((0, SIDE * SIDE)), dtype=np.float64)
    if values.shape != (len(y), SIDE * SIDE):
        raise DatasetError("x: must be one row of 784 numbers for each label")
    # Not 0 <= values <= 1 is also true of NaN, which JSON's reader lets through.
    if not ((values >= 0) & (values <= 1)).all():
        raise DatasetError("x: must be numbers from 0 to 1")
    return np.rint(values * 255).astype(np.uint8).reshape(-1, SIDE, SIDE, 1), labels
