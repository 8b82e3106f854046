"""IDX files, plain or gzipped: the format of MNIST, Fashion-MNIST and EMNIST.

Source: yann.lecun.com/exdb/mnist: two zero bytes, a type, the number of dimensions, each
dimension as a big-endian 32-bit number, then the values, big-endian too.
"""

import gzip
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.data.images import LabelledImages, numbered
from workers.errors import DatasetError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
LARGEST = 1 << 33  # bytes of values: a forged header reserves no more


def read_idx(path: Path) -> NDArray[Any]:
    """Return the array of a file, in this machine's byte order.

    Raises DatasetError if the file is missing, no IDX, cut, or longer than it says.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            magic = file.read(4)
            if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES:
                raise DatasetError("the file is no IDX: its first bytes are others")
            dtype, rank = np.dtype(_TYPES[magic[2]]), magic[3]
            sides = file.read(4 * rank)
            if rank == 0 or len(sides) < 4 * rank:
                raise DatasetError("the IDX file has no dimensions, or is cut")
            shape = [int.from_bytes(sides[i : i + 4], "big") for i in range(0, 4 * rank, 4)]
            size = prod(shape) * dtype.itemsize
            if size > LARGEST:
                raise DatasetError("the IDX file claims to be larger than 8 GiB")
            values = file.read(size)
            if len(values) != size or file.read(1):
                raise DatasetError("the IDX file is cut, or longer than it says")
    except (OSError, EOFError, zlib.error):
        raise DatasetError("the IDX file cannot be read: fetch it again") from None
    array: NDArray[Any] = np.frombuffer(values, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def load_idx(
    images: Path, labels: Path, test_images: Path | None = None, test_labels: Path | None = None
) -> LabelledImages:
    """Return the images of one pair of files, or of a training and a test pair.

    Raises DatasetError as `read_idx`, or if the files do not belong together.
    """
    pairs = [(images, labels)]
    if test_images is not None and test_labels is not None:
        pairs.append((test_images, test_labels))
    elif test_images is not None or test_labels is not None:
        raise DatasetError("test images and test labels come together")
    parts = [(_pixels(read_idx(one)), _classes(read_idx(two))) for one, two in pairs]
    if any(len(pixels) != len(classes) for pixels, classes in parts):
        raise DatasetError("labels: must be one for each image")
    if len({pixels.shape[1:] for pixels, _ in parts}) > 1:
        raise DatasetError("images: training and test images have different sizes")
    found = np.concatenate([classes for _, classes in parts])
    return LabelledImages(
        images=np.concatenate([pixels for pixels, _ in parts]),
        labels=found,
        label_names=numbered(found),
        is_test=np.repeat(np.arange(len(parts)) == 1, [len(classes) for _, classes in parts]),
    )


def _pixels(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or 0 in array.shape:
        raise DatasetError("images: must be (n, height, width) bytes")
    return array if array.ndim == 4 else array[..., None]


def _classes(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise DatasetError("labels: must be one integer for each image")
    return array.astype(np.int64)
