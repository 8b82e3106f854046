"""IDX files written byte by byte, and damaged ones."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.data.idx import load_idx, read_idx
from workers.errors import DatasetError

IMAGES = (np.arange(5 * 3 * 4) * 3 % 256).astype(np.uint8).reshape(5, 3, 4)
LABELS = np.array([3, 0, 1, 1, 2], dtype=np.uint8)


def idx(array: NDArray[np.generic], kind: int = 8) -> bytes:
    header = struct.pack(">BBBB", 0, 0, kind, array.ndim)
    header += struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def saved(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("zipped", [False, True])
def test_images_and_labels(zipped: bool, tmp_path: Path) -> None:
    pack = gzip.compress if zipped else bytes
    images = saved(tmp_path / "i", pack(idx(IMAGES)))
    labels = saved(tmp_path / "l", pack(idx(LABELS)))
    tests = saved(tmp_path / "ti", pack(idx(IMAGES[:2])))
    answers = saved(tmp_path / "tl", pack(idx(LABELS[:2])))
    got = load_idx(images, labels, tests, answers)
    assert got.images.shape == (7, 3, 4, 1)
    assert np.array_equal(got.images[:5, ..., 0], IMAGES)
    assert got.labels.tolist() == [3, 0, 1, 1, 2, 3, 0]
    assert got.is_test.tolist() == [False] * 5 + [True] * 2
    assert got.label_names == ("0", "1", "2", "3")
    assert not load_idx(images, labels).is_test.any()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(0x08, "u1"), (0x09, "i1"), (0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8")],
)
def test_every_type_in_either_order(kind: int, dtype: str, tmp_path: Path) -> None:
    array = np.array([[1, -2, 100]]).astype(dtype)
    got = read_idx(saved(tmp_path / "a", idx(array, kind)))
    assert got.dtype == np.dtype(dtype)
    assert got.tolist() == array.tolist()


GOOD = idx(IMAGES)
DAMAGED = {
    "empty": b"",
    "three bytes": GOOD[:3],
    "another magic": b"\1" + GOOD[1:],
    "an unknown type": GOOD[:2] + b"\x0a" + GOOD[3:],
    "no dimension": GOOD[:3] + b"\0",
    "a cut header": GOOD[:9],
    "cut values": GOOD[:-1],
    "longer than it says": GOOD + b"\0",
    "more rows than values": GOOD[:4] + struct.pack(">I", 6) + GOOD[8:],
    "claims 2^96 bytes": GOOD[:4] + b"\xff" * 12 + GOOD[16:],
    "cut gzip": gzip.compress(GOOD)[:-9],
    "damaged gzip": gzip.compress(GOOD)[:12] + b"\xff\xff" + gzip.compress(GOOD)[14:],
    "gzip of nothing": gzip.compress(b""),
    "a zip": b"PK\3\4" + GOOD,
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_files_are_refused(what: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError):
        read_idx(saved(tmp_path / "a", DAMAGED[what]))


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    images, labels = saved(tmp_path / "i", GOOD), saved(tmp_path / "l", idx(LABELS))
    short = saved(tmp_path / "s", idx(LABELS[:4]))
    small = saved(tmp_path / "m", idx(IMAGES[:, :2]))
    real = saved(tmp_path / "r", idx(LABELS.astype(np.float32), 0x0D))
    with pytest.raises(DatasetError, match="one for each image"):
        load_idx(images, short)
    with pytest.raises(DatasetError, match="images: must be"):
        load_idx(labels, labels)
    with pytest.raises(DatasetError, match="labels: must be"):
        load_idx(images, images)
    with pytest.raises(DatasetError, match="labels: must be"):
        load_idx(images, real)
    with pytest.raises(DatasetError, match="different sizes"):
        load_idx(images, labels, small, labels)
    with pytest.raises(DatasetError, match="come together"):
        load_idx(images, labels, images)
    with pytest.raises(DatasetError, match="cannot be read"):
        load_idx(tmp_path / "nowhere", labels)
    negative = saved(tmp_path / "n", idx(-LABELS.astype(np.int8), 0x09))
    with pytest.raises(DatasetError, match="count from 0"):
        load_idx(images, negative)
