"""Images in the formats of their authors.

idx     MNIST's files: a folder, or the one with the training images; labels lie beside it
cifar   a folder cifar-10-batches-py or cifar-100-python
leaf    LEAF's FEMNIST: a .json, a folder of them, or a folder with train (and test)
"""

from pathlib import Path
from typing import Literal, get_args

from benchmarks.data.cifar import load_cifar
from benchmarks.data.idx import load_idx
from benchmarks.data.leaf import load_leaf
from workers.data.images import LabelledImages
from workers.errors import DatasetError

Format = Literal["idx", "cifar", "leaf"]
FORMATS: tuple[Format, ...] = get_args(Format)
TRAIN, TESTS = "train-images", ("t10k-images", "test-images")  # MNIST's names, and EMNIST's


def load_images(path: Path, form: Format, *, coarse: bool = False) -> LabelledImages:
    """Return the images of a path in one of the formats, each with its label.

    Rows of the published test set are marked `is_test`. coarse: as `load_cifar`, for cifar.
    Raises DatasetError as the reader of that format, or where files are missing.
    """
    if coarse and form != "cifar":
        raise DatasetError("coarse labels are CIFAR-100's: leave --coarse out")
    if form == "idx":
        return load_idx(*_idx_files(path))
    if form == "cifar":
        return load_cifar(path, coarse=coarse)
    if not (path / "train").is_dir():
        return load_leaf(path)
    test = path / "test"
    return load_leaf(path / "train", test if test.is_dir() else None)


def _idx_files(path: Path) -> tuple[Path, ...]:
    """Return images and labels of the training set, and of the test set where it is there."""
    images = _only(path, TRAIN) if path.is_dir() else path
    if images is None:
        raise DatasetError(f"the folder has no file, or several, named {TRAIN}-idx3-ubyte")
    labels = _labels_of(images)
    if not labels.exists() or labels == images:
        raise DatasetError(
            "the labels must lie beside the images: train-labels-idx1-ubyte for "
            "train-images-idx3-ubyte, both with .gz or both without"
        )
    for name in TESTS:
        test = images.with_name(images.name.replace(TRAIN, name))
        if test != images and test.exists() and _labels_of(test).exists():
            return images, labels, test, _labels_of(test)
    return images, labels


def _labels_of(images: Path) -> Path:
    return images.with_name(images.name.replace("images", "labels").replace("idx3", "idx1"))


def _only(folder: Path, name: str) -> Path | None:
    found = sorted(folder.glob(f"*{name}*"))
    return found[0] if len(found) == 1 else None
