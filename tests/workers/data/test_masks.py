"""A folder of images and masks, written as PNG here, and folders with something wrong."""

import importlib.util
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from workers.data.masks import load_masks
from workers.errors import DatasetError

Image = pytest.importorskip("PIL.Image")

PICTURE = np.arange(6 * 5 * 3, dtype=np.uint8).reshape(6, 5, 3)
MASK = (np.arange(30) % 3).astype(np.uint8).reshape(6, 5)


def png(path: Path, array: NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def folder(root: Path) -> Path:
    for site, name in (("b", "2"), ("a", "1"), ("a", "0")):
        png(root / "images" / site / f"{name}.png", PICTURE + int(name))
        png(root / "masks" / site / f"{name}.png", MASK)
    return root


def test_images_masks_and_sites(tmp_path: Path) -> None:
    got = load_masks(folder(tmp_path), 3)
    assert got.clients.tolist() == ["a", "a", "b"]
    assert got.names.tolist() == ["a/0.png", "a/1.png", "b/2.png"]
    assert got.images.shape == (3, 6, 5, 3)
    assert np.array_equal(got.images[2], PICTURE + 2)
    assert np.array_equal(got.masks[0], MASK)
    assert got.masks.dtype == np.int64


def test_black_and_white_masks_and_grey_images(tmp_path: Path) -> None:
    png(tmp_path / "images/a/0.png", PICTURE[..., 0])
    png(tmp_path / "masks/a/0.png", (MASK > 0).astype(np.uint8) * 255)
    got = load_masks(tmp_path, 2, values=(0, 255))
    assert got.images.shape == (1, 6, 5, 1)
    assert np.array_equal(got.masks[0], MASK > 0)


def test_a_palette_holds_classes_and_one_bit_is_black_and_white(tmp_path: Path) -> None:
    png(tmp_path / "images/a/0.png", PICTURE)
    (tmp_path / "masks/a").mkdir(parents=True)
    image = Image.fromarray(MASK).convert("L")
    image.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
    image.save(tmp_path / "masks/a/0.png")
    assert np.array_equal(load_masks(tmp_path, 3).masks[0], MASK)
    Image.fromarray(MASK > 0).save(tmp_path / "masks/a/0.png")
    assert np.array_equal(load_masks(tmp_path, 2, values=(0, 255)).masks[0], MASK > 0)


def deep_png(array: NDArray[np.uint16]) -> bytes:
    """Return a PNG of 16 bits for each channel, which Pillow cannot write."""
    height, width, channels = array.shape
    colour = {2: 4, 3: 2}[channels]
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


@pytest.mark.parametrize("channels", [2, 3])
def test_sixteen_bits_of_colours_are_not_halved(tmp_path: Path, channels: int) -> None:
    root = folder(tmp_path)
    for path in root.glob("images/*/*.png"):
        path.write_bytes(deep_png(PICTURE[..., :channels].astype(np.uint16) * 257 + 1))
    with pytest.raises(DatasetError, match="more than 8 bits"):
        load_masks(root, 3)


def test_indices_of_a_palette_are_no_pixels_of_an_image(tmp_path: Path) -> None:
    """The same colour has another index in the palette of another image."""
    root = folder(tmp_path)
    for path in root.glob("images/*/*.png"):
        Image.fromarray(PICTURE).quantize(16).save(path)
    with pytest.raises(DatasetError, match="images: one has a palette"):
        load_masks(root, 3)


@pytest.mark.parametrize("name", ["a/9.PNG", "a/9.tif", "a/deeper/9.png", "9.png"])
def test_files_that_would_not_be_learned_are_refused(tmp_path: Path, name: str) -> None:
    root = folder(tmp_path)
    (root / "images/a/.DS_Store").write_bytes(b"of a desktop")
    assert len(load_masks(root, 3).images) == 3
    for part in ("images", "masks"):
        (root / part / name).parent.mkdir(exist_ok=True)
        (root / part / name).write_bytes((root / part / "a/0.png").read_bytes())
    with pytest.raises(DatasetError, match=r"1 entries are not SITE/NAME\.png"):
        load_masks(root, 3)


def break_folder(root: Path, how: str) -> None:
    image, mask = root / "images/a/0.png", root / "masks/a/0.png"
    if how == "no images":
        for path in root.glob("*/*/*.png"):
            path.unlink()
    elif how == "a mask missing":
        mask.unlink()
    elif how == "an image missing":
        image.unlink()
    elif how == "an image of another size":
        png(image, PICTURE[:5])
    elif how == "a grey image among coloured ones":
        png(image, PICTURE[..., 0])
    elif how == "a mask of another size":
        png(mask, MASK[:5])
    elif how == "a coloured mask":
        png(mask, PICTURE)
    elif how == "a class too many":
        png(mask, MASK + 1)
    elif how == "sixteen bits":
        png(mask, MASK.astype(np.uint16) * 256)
    elif how == "cut":
        image.write_bytes(image.read_bytes()[:50])
    elif how == "empty":
        image.write_bytes(b"")
    elif how == "without image data":
        whole = image.read_bytes()  # signature and header are 33 bytes, the end is 12
        image.write_bytes(whole[:33] + whole[-12:])
    elif how == "another format":
        Image.fromarray(PICTURE).save(root / "a.bmp")
        image.write_bytes((root / "a.bmp").read_bytes())
    else:
        assert how == "claims to be enormous"
        data = bytearray(image.read_bytes())
        data[16:20] = (1 << 30).to_bytes(4, "big")
        image.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no images", "of the same name"),
        ("a mask missing", "of the same name"),
        ("an image missing", "of the same name"),
        ("an image of another size", "the same width, height"),
        ("a grey image among coloured ones", "number of channels"),
        ("a mask of another size", "width and height of their images"),
        ("a coloured mask", "grey"),
        ("a class too many", "outside 0 to"),
        ("sixteen bits", "8 bits"),
        ("cut", "PNG"),
        ("empty", "PNG"),
        ("without image data", "PNG"),
        ("another format", "PNG"),
        ("claims to be enormous", "PNG|pixels"),
    ],
)
def test_odd_folders_are_named(how: str, message: str, tmp_path: Path) -> None:
    folder(tmp_path)
    break_folder(tmp_path, how)
    with pytest.raises(DatasetError, match=message):
        load_masks(tmp_path, 3)


def test_a_truncated_image_is_refused_where_pillow_would_fill_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)
    folder(tmp_path)
    break_folder(tmp_path, "cut")
    with pytest.raises(DatasetError, match="PNG"):
        load_masks(tmp_path, 3)


def test_a_grey_value_without_a_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="outside 0 to"):
        load_masks(folder(tmp_path), 2, values=(0, 255))
    for values in ((0,), (0, 0)):
        with pytest.raises(DatasetError, match="grey value"):
            load_masks(tmp_path, 2, values=values)


def test_without_pillow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.data.masks.find_spec", lambda name: None)
    with pytest.raises(DatasetError, match=r"in a clone of Lethe: .*\[vision\]"):
        load_masks(folder(tmp_path), 3)
    assert importlib.util.find_spec("PIL") is not None
