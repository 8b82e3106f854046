"""An extractor's inputs, from files that hold them and files that do not."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.small import pack, rows
from workers.data.extractors.base import ExtractorError
from workers.data.extractors.described import format_description
from workers.data.extractors.identity import Identity
from workers.data.identities import contributed_npz
from workers.data.image_npz import load_image_npz
from workers.data.npz import load_npz
from workers.data.raw import load_extractor, load_raw
from workers.errors import DatasetError, RefusedError
from workers.secure_sum.local import parse_rows


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "raw.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("name", "array", "kind", "shape", "dtype"),
    [
        ("inputs", np.ones((3, 2)), "features", (3, 2), np.float64),
        ("features", np.ones((3, 2), np.float16), "features", (3, 2), np.float32),
        ("inputs", np.ones((3, 4, 5), np.uint8), "features", (3, 20), np.float32),
        ("texts", np.array(["a", "b", "c"]), "texts", (3,), np.dtype("<U1")),
        ("images", np.ones((3, 4, 5, 3), np.uint8), "images", (3, 4, 5, 3), np.uint8),
    ],
)
def test_inputs_are_told_by_their_name(
    tmp_path: Path, name: str, array: Any, kind: str, shape: tuple[int, ...], dtype: Any
) -> None:
    labels = np.array([0, 1, 0])
    got = load_raw(saved(tmp_path, **{name: array}, labels=labels, other=np.ones(7)))
    assert got.kind == kind
    assert got.inputs.shape == shape
    assert got.inputs.dtype == dtype
    assert list(got.beside) == ["labels"]
    assert got.beside["labels"].tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.ones(3)}, "exactly one array of"),
        ({"texts": np.array(["a"]), "inputs": np.ones((1, 1))}, "exactly one array of"),
        ({"inputs": np.ones(3)}, "inputs: must be numbers"),
        ({"inputs": np.array([["a"]])}, "inputs: must be numbers"),
        ({"inputs": np.ones((0, 2))}, "at least one row"),
        ({"texts": np.array("a")}, "at least one row"),
        ({"texts": np.array(["a"]), "labels": np.ones(2)}, "labels: must hold exactly one"),
        ({"texts": np.array([{"a": 1}])}, "pickled objects"),
    ],
)
def test_odd_files_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load_raw(saved(tmp_path, **arrays))


def test_files_that_are_no_npz_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for data in (b"", b"PK\x03\x04", b"hello"):
        path.write_bytes(data)
        for load in (load_raw, load_extractor):
            with pytest.raises(DatasetError, match="not a readable"):
                load(path)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    for load in (load_raw, load_extractor):
        with pytest.raises(DatasetError, match="not a readable"):
            load(path)


def test_the_extractor_of_a_file_is_read(tmp_path: Path) -> None:
    text = format_description(Identity(2), 2)
    found = load_extractor(saved(tmp_path, extractor=np.array(text)))
    assert found is not None
    assert found.digest == Identity(2).digest
    assert load_extractor(saved(tmp_path, features=np.ones((1, 1)))) is None
    with pytest.raises(ExtractorError):
        load_extractor(saved(tmp_path, extractor=np.array("{}")))


def header_cut_off(data: bytes) -> bytes:
    """The header of an array is not valid Python: a bracket is open."""
    return data.replace(b"(40, 6)", b"(40, 6(", 1)


def text_cut_off(data: bytes) -> bytes:
    """numpy takes this for a header of old Python, the tokenizer does not."""
    return data.replace(b"(40, 6)", b"(40,'''", 1)


def checksum_of_another(data: bytes) -> bytes:
    at = data.index(b"(40, 6)") + 150
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def no_array(_: bytes) -> bytes:
    """A member has the name of an array but is none: numpy returns its bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in (
            "features",
            "labels",
            "clients",
            "records",
            "identity_email",
            "train_images",
            "train_labels",
        ):
            archive.writestr(f"{name}.npy", b"nothing that numpy wrote")
    return stream.getvalue()


def one_array(_: bytes) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ones(3))
    return stream.getvalue()


READERS: dict[str, Callable[[Path], object]] = {
    "raw": load_raw,
    "federation": load_npz,
    "images": load_image_npz,
    "local": lambda path: parse_rows(path.read_bytes(), people=True),
    "hashed": contributed_npz,
}


def labels_of_words(_: bytes) -> bytes:
    words = np.array([f"word {number}" for number in range(40)])
    return pack(rows() | {"labels": words, "identity_email": words})


DAMAGES = (header_cut_off, text_cut_off, checksum_of_another, no_array, one_array)


@pytest.mark.parametrize("damage", DAMAGES, ids=[one.__name__ for one in DAMAGES])
@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_archive_is_refused_by_every_reader(
    tmp_path: Path, reader: str, damage: Callable[[bytes], bytes]
) -> None:
    people = np.array([f"p{number}" for number in range(40)])
    arrays = rows() | {"identity_email": people}
    images = {"train_images": np.ones((40, 6), np.uint8), "train_labels": np.zeros(40, int)}
    whole = pack(images if reader == "images" else arrays)
    data = damage(whole)
    assert data != whole
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    with pytest.raises(RefusedError):
        READERS[reader](path)


def test_words_are_no_labels() -> None:
    with pytest.raises(RefusedError, match="labels: must be one integer"):
        parse_rows(labels_of_words(b""))
