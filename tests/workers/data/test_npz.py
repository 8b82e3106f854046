"""Files of the federation shape, and files that only look like one."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import app.uploads.npz
from workers.arrays import MAX_HEADER
from workers.data.extractors.identity import Identity
from workers.data.npz import load_npz
from workers.errors import DatasetError
from workers.registration.ridge import prepare

GOOD: dict[str, Any] = {
    "features": np.arange(24, dtype=np.float16).reshape(8, 3),
    "labels": np.array([0, 1, 2, 0, 1, 2, 0, 1], dtype=np.int16),
    "clients": np.array([7, 7, 8, 8, 9, 9, 9, 7], dtype=np.int32),
}


def saved(folder: Path, **changes: Any) -> Path:
    arrays = {name: array for name, array in {**GOOD, **changes}.items() if array is not None}
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


def test_a_header_that_numpy_would_parse_for_seconds_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_HEADER == app.uploads.npz.MAX_HEADER
    path = saved(tmp_path)
    header = b"{'descr': '<i4'< 'fortran_order': False, 'shape': (8,), }"
    header = header.ljust(MAX_HEADER - 1) + b"$\n"
    with zipfile.ZipFile(path, "a") as archive:
        size = len(header).to_bytes(2, "little")
        archive.writestr("subjects.npy", b"\x93NUMPY\x01\x00" + size + header + bytes(32))
    filtering = "numpy.lib._format_impl._filter_header"
    monkeypatch.setattr(filtering, lambda _: pytest.fail("numpy parses it"))
    with pytest.raises(DatasetError, match="subjects: damaged"):
        load_npz(path)


def test_a_file_with_the_three_arrays(tmp_path: Path) -> None:
    got = load_npz(saved(tmp_path))
    assert got.features.dtype == np.float32
    assert got.features.tolist() == GOOD["features"].tolist()
    assert got.labels.tolist() == GOOD["labels"].tolist()
    assert got.clients.tolist() == ["7", "7", "8", "8", "9", "9", "9", "7"]
    assert got.label_names == ("0", "1", "2")
    assert got.is_test.sum() == 1
    assert len(set(got.records.tolist())) == 8


def test_the_optional_arrays_are_taken(tmp_path: Path) -> None:
    is_test = np.array([True] + [False] * 7)
    path = saved(
        tmp_path,
        label_names=np.array(["a", "b", "c", "never seen"]),
        is_test=is_test,
        clients=np.array(["x"] * 4 + ["y"] * 4),
        features=GOOD["features"].astype(np.float64) / 3,
    )
    got = load_npz(path)
    assert got.label_names == ("a", "b", "c", "never seen")
    assert got.is_test.tolist() == is_test.tolist()
    assert got.clients.tolist() == ["x"] * 4 + ["y"] * 4
    assert got.features.dtype == np.float64


@pytest.mark.parametrize(
    ("records", "ids"),
    [
        (np.arange(40, 48), [str(number) for number in range(40, 48)]),
        (np.array(list("ABCDEFGH")), list("ABCDEFGH")),
    ],
)
def test_records_keep_the_ids_they_have(
    records: NDArray[Any], ids: list[str], tmp_path: Path
) -> None:
    is_test = np.array([True] + [False] * 7)
    federation = load_npz(saved(tmp_path, records=records, is_test=is_test))
    assert federation.records.tolist() == ids
    prepared = prepare(federation, Identity(3), ref="r")
    assert prepared.records == ids[1:]
    with np.load(io.BytesIO(prepared.npz), allow_pickle=False) as sent:
        assert sent["records"].tolist() == ids[1:]
        assert sent["labels"].tolist() == GOOD["labels"].tolist()[1:]


def test_the_seed_decides_what_is_held_out(tmp_path: Path) -> None:
    path = saved(tmp_path)
    held = [load_npz(path, seed).is_test.tolist() for seed in range(20)]
    assert held[3] == load_npz(path, 3).is_test.tolist()
    assert len({tuple(rows) for rows in held}) > 1


NO_TEXTS = np.array([0x110000, *range(65, 72)], dtype=np.uint32).view("<U1")
NAN_FEATURES = GOOD["features"].copy()
NAN_FEATURES[2, 1] = np.nan
INF_FEATURES = GOOD["features"].copy()
INF_FEATURES[0, 0] = np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, "features: missing"),
        ({"labels": None}, "labels: missing"),
        ({"clients": None}, "clients: missing"),
        ({"features": NAN_FEATURES}, "features: .* NaN"),
        ({"features": INF_FEATURES}, "features: .* infinity"),
        ({"features": np.zeros(8)}, "features: must be a matrix"),
        ({"features": np.zeros((8, 2, 2))}, "features: must be a matrix"),
        ({"features": np.zeros((8, 0))}, "features: .* at least one"),
        ({"features": np.zeros((8, 2), dtype=complex)}, "features: .* numbers"),
        ({"features": np.full((8, 2), "1.0")}, "features: .* numbers"),
        ({"features": np.array([[None]] * 8, dtype=object)}, "features: .* pickled"),
        ({"labels": GOOD["labels"][:5]}, "labels: .* each row"),
        ({"labels": GOOD["labels"].astype(float)}, "labels: .* integer"),
        ({"labels": -GOOD["labels"]}, "labels: must count from 0"),
        ({"features": np.full((8, 3), 2**53 + 1)}, r"features: holds an integer above 2\*\*53"),
        ({"features": np.full((8, 3), -(2**63))}, r"features: holds an integer above 2\*\*53"),
        ({"labels": np.full(8, 2**40)}, "labels: must count from 0"),
        ({"labels": np.full(8, 10_000)}, "labels: .* to less than 10,000"),  # a name for each
        ({"records": NO_TEXTS}, "records: holds a code point that is no character"),
        ({"label_names": NO_TEXTS[:3]}, "label_names: holds a code point that is no character"),
        ({"labels": GOOD["labels"][None]}, "labels: "),
        ({"labels": np.empty(0, dtype=int)}, "the file has no rows"),
        ({"clients": GOOD["clients"][:5]}, "clients: .* each row"),
        ({"clients": GOOD["clients"].astype(float)}, "clients: "),
        ({"clients": np.array(["a", None] * 4, dtype=object)}, "clients: .* pickled"),
        ({"records": np.arange(7)}, "records: .* each row"),
        ({"records": np.arange(8) % 7}, "records: .* repeats"),
        ({"records": np.arange(8.0)}, "records: .* integer or string"),
        ({"records": np.array(["a", None] * 4, dtype=object)}, "records: .* pickled"),
        ({"label_names": np.array(["a", "b"])}, "labels: .* label_names"),
        ({"label_names": np.array(["a", "a", "b"])}, "label_names: .* repeats"),
        ({"label_names": np.array([1, 2, 3])}, "label_names: .* strings"),
        ({"is_test": np.ones(8, dtype=bool)}, "is_test: holds out every row"),
        ({"is_test": np.zeros(7, dtype=bool)}, "is_test: .* each row"),
        ({"is_test": np.zeros(8, dtype=int)}, "is_test: must be boolean"),
    ],
)
def test_odd_arrays_are_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        load_npz(saved(tmp_path, **changes))


def spoiled(how: str) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **GOOD)
    good = buffer.getvalue()
    if how == "cut":
        return good[: len(good) // 2]
    if how == "flipped":
        return good[:75] + bytes([good[75] ^ 255]) + good[76:]
    if how == "one array":
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(3))
        return buffer.getvalue()
    if how == "a member that is no array":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("features.npy", b"not an array")
        return buffer.getvalue()
    return {"empty": b"", "text": b"features,labels\n", "pickle": b"\x80\x04N."}[how]


@pytest.mark.parametrize(
    "how",
    ["empty", "text", "pickle", "cut", "flipped", "one array", "a member that is no array"],
)
def test_other_files_are_refused(how: str, tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(spoiled(how))
    with pytest.raises(DatasetError):
        load_npz(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="readable"):
        load_npz(tmp_path / "nowhere.npz")
