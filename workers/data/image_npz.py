"""Images in one .npz: train_images, train_labels, test_images, test_labels, label_names.

The owners of the rows are in train_clients, train_subjects and train_identity_KIND, and the
same for the test rows. Keras's names x_train, y_train, x_test, y_test are read too.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.identity import COLUMN
from workers.arrays import UNREADABLE, load_numpy
from workers.data import identities
from workers.data.identities import Column, hashed
from workers.data.images import LabelledImages, numbered
from workers.errors import DatasetError

_NAMES = (
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)
_PARTS = ("train_", "test_")


def load_image_npz(path: Path) -> LabelledImages:
    """Return the images of a file; test pair, label_names and clients may be missing.

    images are (n, h, w) or (n, h, w, c) bytes. Pickled objects are refused.
    Raises DatasetError naming the array at fault, or that the file is no .npz.
    """
    try:
        with path.open("rb") as file:
            archive = load_numpy(file)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DatasetError("the file is one array: save it with numpy.savez")
            columns = [name for name in archive.files if _is_of_people(name)]
            read = _KNOWN.union(columns)
            arrays = {name: archive[name] for name in archive.files if name in read}
    except UNREADABLE:
        raise DatasetError("the file is not a readable .npz: save it again") from None
    names = next((names for names in _NAMES if names[0] in arrays), None)
    if names is None:
        raise DatasetError(
            "train_images: missing; name the arrays train_images and train_labels, "
            "or x_train and y_train"
        )
    for name in columns:
        if not name.startswith(_PARTS):
            raise DatasetError(
                f"{name}: call it train_{name}, and that of test rows test_{name}"
            )
    parts = [_pair(arrays, *names[:2])]
    if names[2] in arrays or names[3] in arrays:
        parts.append(_pair(arrays, *names[2:]))
    if len({images.shape[1:] for images, _ in parts}) > 1:
        raise DatasetError(
            f"{names[2]}: must have the height, width and channels of {names[0]}"
        )
    labels = np.concatenate([found for _, found in parts])
    sizes = [len(found) for _, found in parts]
    return LabelledImages(
        images=np.concatenate([images for images, _ in parts]),
        labels=labels,
        label_names=_label_names(arrays.get("label_names"), labels),
        is_test=np.repeat(np.arange(len(parts)) == 1, sizes),
        clients=_owners(arrays, "clients", sizes),
        subjects=_owners(arrays, "subjects", sizes),
        identities=_identities(arrays, sizes),
    )


_OWNERS = {part + name for part in _PARTS for name in ("clients", "subjects")}
_KNOWN = {name for names in _NAMES for name in names} | {"label_names"}


def _is_of_people(name: str) -> bool:
    """Return whether an array names the owners of rows, whatever its prefix."""
    return name in _OWNERS or COLUMN in name or "subjects" in name


def _owners(arrays: dict[str, Any], column: str, sizes: list[int]) -> NDArray[np.str_] | None:
    if not any(part + column in arrays for part in _PARTS):
        return None
    found = []
    for part, size in zip(_PARTS, sizes, strict=False):
        array = arrays.get(part + column)
        whole = isinstance(array, np.ndarray) and array.shape == (size,)
        if array is None or not whole or array.dtype.kind not in "iuU":
            raise DatasetError(f"{part}{column}: must be one integer or string for each image")
        found.append(array.astype(np.str_))
    if len(sizes) == 1 and _PARTS[1] + column in arrays:
        raise DatasetError(
            f"{_PARTS[1]}{column}: there are no test images: leave the array out"
        )
    return np.concatenate(found)


def _identities(arrays: dict[str, Any], sizes: list[int]) -> dict[str, Column]:
    """Return each kind's column over all images; rows of a part without it have none."""
    found: dict[str, Column] = {}
    kinds = {
        name.removeprefix(part).removeprefix(COLUMN)
        for name in arrays
        for part in _PARTS
        if name.startswith(part + COLUMN)
    }
    for kind in sorted(kinds):
        columns = []
        for place, part in enumerate(_PARTS):
            name = f"{part}{COLUMN}{kind}"
            size = sizes[place] if place < len(sizes) else 0
            if name not in arrays:
                columns.append(hashed(kind, np.full(size, "")))
                continue
            try:
                own = {COLUMN + kind: arrays[name]}
                columns.append(hashed(kind, identities.columns(own, size)[kind]))
            except DatasetError as error:
                raise DatasetError(f"{part}{error}") from None
        found[kind] = np.concatenate(columns)
    return found


def _pair(
    arrays: dict[str, Any], first: str, second: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    for name in (first, second):
        if not isinstance(arrays.get(name), np.ndarray):
            raise DatasetError(f"{name}: missing, or no array: save it with numpy.savez")
    images, labels = arrays[first], arrays[second]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape:
        raise DatasetError(
            f"{first}: must be (n, height, width) or (n, height, width, c) bytes"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]  # as in Keras's CIFAR
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        raise DatasetError(f"{second}: must be one integer for each image")
    if int(labels.min()) < 0 or int(labels.max()) >= 1 << 20:
        raise DatasetError(f"{second}: must count from 0")
    return images if images.ndim == 4 else images[..., None], labels.astype(np.int64)


def _label_names(array: Any, labels: NDArray[np.int64]) -> tuple[str, ...]:
    if array is None:
        return numbered(labels)
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind != "U":
        raise DatasetError("label_names: must be a list of strings")
    return tuple(str(name) for name in array)
