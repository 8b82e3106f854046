"""Images in whichever of the published formats a path has: told apart by names and first bytes.

npz     a file that `image_npz` reads
idx     MNIST's files: a folder, or the one with the training images; labels lie beside it
cifar   a folder cifar-10-batches-py or cifar-100-python
leaf    LEAF's FEMNIST: a .json, a folder of them, or a folder with train (and test)
masks   a folder with images/SITE/NAME.png and masks/SITE/NAME.png
"""

from pathlib import Path
from typing import Literal, get_args

from workers.data.cifar import load_cifar
from workers.data.idx import load_idx
from workers.data.image_npz import load_image_npz
from workers.data.images import LabelledImages
from workers.data.leaf import load_leaf
from workers.errors import DatasetError

Format = Literal["npz", "idx", "cifar", "leaf", "masks"]
FORMATS: tuple[Format, ...] = get_args(Format)
TRAIN, TESTS = "train-images", ("t10k-images", "test-images")  # MNIST's names, and EMNIST's


def detect(path: Path) -> Format:
    """Return the format of a file or folder.

    Raises DatasetError where it has the marks of none or of several; the message has the
    formats to name.
    """
    found = _of_folder(path) if path.is_dir() else _of_file(path)
    if len(found) != 1:
        known = ", ".join(found or FORMATS)
        raise DatasetError(f"the data may be of several formats or none: name one of {known}")
    return found[0]


def load_labelled(path: Path, form: Format, *, coarse: bool = False) -> LabelledImages:
    """Return the images of a path in one of the formats with a label for each image.

    Rows of the published test set are marked `is_test`. coarse: as `load_cifar`, for cifar.
    Raises DatasetError as the reader of that format, or where files are missing.
    """
    if form == "idx":
        return load_idx(*_idx_files(path))
    if form == "cifar":
        return load_cifar(path, coarse=coarse)
    if form == "leaf":
        if not (path / "train").is_dir():
            return load_leaf(path)
        test = path / "test"
        return load_leaf(path / "train", test if test.is_dir() else None)
    if form == "npz":
        return load_image_npz(path)
    raise DatasetError("masks have no label for each image")


def _of_folder(path: Path) -> list[Format]:
    found: list[Format] = []
    if any(path.glob(f"*{TRAIN}*")):
        found.append("idx")
    if (path / "train").is_file() or any(path.glob("data_batch_*")):
        found.append("cifar")
    if any(path.glob("*.json")) or any((path / "train").glob("*.json")):
        found.append("leaf")
    if (path / "images").is_dir() and (path / "masks").is_dir():
        found.append("masks")
    return found


def _of_file(path: Path) -> list[Format]:
    try:
        with path.open("rb") as file:
            first = file.read(2)
    except OSError:
        raise DatasetError("the data cannot be read") from None
    if path.suffix == ".json":
        return ["leaf"]
    if first in (b"\x1f\x8b", b"\0\0"):
        return ["idx"]
    # Whatever else it is, the reader of .npz says what is wrong with it.
    return ["npz"]


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
