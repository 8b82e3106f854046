"""`lethe model register-network` from each format, with the clients the data have or dealt."""

import gzip
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.cli.registering import Service, register, said, service
from workers.data.image_npz import load_image_npz
from workers.families.network.registration import deal_out

__all__ = ["service"]

PIXELS = np.arange(12 * 7 * 6, dtype=np.uint16).astype(np.uint8).reshape(12, 7, 6)
LABELS = (np.arange(12) % 3).astype(np.uint8)


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist(folder: Path) -> Path:
    files = {
        "train-images-idx3-ubyte.gz": PIXELS[:10],
        "train-labels-idx1-ubyte.gz": LABELS[:10],
        "t10k-images-idx3-ubyte.gz": PIXELS[10:],
        "t10k-labels-idx1-ubyte.gz": LABELS[10:],
    }
    for name, array in files.items():
        (folder / name).write_bytes(gzip.compress(idx(array)))
    return folder


@pytest.mark.parametrize("named", ["", "train-images-idx3-ubyte.gz"])
def test_idx_files_are_dealt_at_random(named: str, tmp_path: Path, service: Service) -> None:
    result = register(mnist(tmp_path) / named, "--deal", 3)
    assert result.exit_code == 0, result.exception
    assert np.array_equal(service.rows["inputs"], PIXELS[:10, None])  # the test pair stays here
    assert service.rows["labels"].tolist() == LABELS[:10].tolist()
    assert service.manifest["classes"] == ["0", "1", "2"]
    first = service.owners()
    assert sorted(map(len, first.values())) == [3, 3, 4]
    register(mnist(tmp_path), "--deal", 3, "--seed", 1)
    assert service.owners() != first


def test_rows_without_clients_are_not_guessed_about(tmp_path: Path, service: Service) -> None:
    assert "deal them with --deal" in said(register(mnist(tmp_path)))
    assert "name how many clients" in said(register(mnist(tmp_path), "--alpha", 1))
    assert "--at-least" in said(register(mnist(tmp_path), "--deal", 2, "--at-least", 2))
    assert "11 clients for 10 rows" in said(register(mnist(tmp_path), "--deal", 11))
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    assert "must lie beside" in said(register(tmp_path, "--deal", 2))
    assert service.manifest == {}


def test_a_skewed_deal_is_that_of_the_experiments(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "images.npz"
    np.savez(path, train_images=PIXELS, train_labels=LABELS)
    assert register(path, "--deal", 3, "--alpha", 0.5, "--seed", 4).exit_code == 0
    dealt = deal_out(load_image_npz(path), 3, 0.5, 4)
    assert service.rows["clients"].tolist() == dealt.tolist()


def cifar(folder: Path, rows: NDArray[np.uint8]) -> Path:
    batches = {
        "train": {"data": rows[:4], "fine_labels": [5, 0, 1, 2], "coarse_labels": [1, 0, 0, 1]},
        "test": {"data": rows[4:], "fine_labels": [3], "coarse_labels": [1]},
        "meta": {"fine_label_names": list("abcdef"), "coarse_label_names": ["low", "high"]},
    }
    for name, batch in batches.items():
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return folder


def test_cifar_pickles_and_their_superclasses(tmp_path: Path, service: Service) -> None:
    rows = np.random.default_rng(0).integers(256, size=(5, 3072), dtype=np.uint8)
    result = register(cifar(tmp_path, rows), "--deal", 2, "--network", "resnet18")
    assert result.exit_code == 0, result.exception
    assert np.array_equal(service.rows["inputs"].reshape(4, -1), rows[:4])
    assert service.rows["labels"].tolist() == [5, 0, 1, 2]
    assert service.manifest["classes"] == list("abcdef")
    assert register(tmp_path, "--deal", 2, "--coarse").exit_code == 0
    assert service.rows["labels"].tolist() == [1, 0, 0, 1]
    assert service.manifest["network"]["parameters"]["classes"] == 2


def written(path: Path, users: dict[str, list[int]]) -> None:
    data = {
        user: {"x": [[shade / 255] * 784 for shade in shades], "y": shades}
        for user, shades in users.items()
    }
    counts = [len(shades) for shades in users.values()]
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps({"users": list(users), "num_samples": counts, "user_data": data})
    )


def leaf(folder: Path) -> Path:
    written(folder / "train/all_0.json", {"nina": [1, 2, 3], "omar": [4], "paul": [5, 6]})
    written(folder / "test/all_0.json", {"omar": [7, 8, 9]})
    return folder


def test_the_writers_of_leaf_are_the_clients(tmp_path: Path, service: Service) -> None:
    result = register(leaf(tmp_path))
    assert result.exit_code == 0, result.exception
    shades = service.rows["inputs"][:, 0, 0, 0].tolist()
    assert shades == service.rows["labels"].tolist() == [1, 2, 3, 4, 5, 6]
    assert service.rows["clients"].tolist() == ["nina"] * 3 + ["omar"] + ["paul"] * 2
    assert len(service.manifest["classes"]) == 62
    assert register(tmp_path / "train/all_0.json", "--network", "logistic").exit_code == 0
    assert service.rows["inputs"][:, 0] == pytest.approx((np.arange(1, 7) / 255 - 0.5) / 0.5)


def test_writers_with_few_rows_are_left_out_and_others_drawn(
    tmp_path: Path, service: Service
) -> None:
    assert register(leaf(tmp_path), "--at-least", 2).exit_code == 0
    # Omar's rows of the test set do not count. Ids stay those of the rows in the files.
    assert service.owners() == {
        "nina": ["record-0", "record-1", "record-2"],
        "paul": ["record-4", "record-5"],
    }
    assert service.rows["labels"].tolist() == [1, 2, 3, 5, 6]
    drawn = set()
    for seed in range(8):
        words = ["--at-least", 2, "--draw", 1, "--seed", seed]
        assert register(tmp_path, *words).exit_code == 0
        drawn.add(tuple(service.owners()))
    assert drawn == {("nina",), ("paul",)}
    assert "only 2 clients" in said(register(tmp_path, "--at-least", 2, "--draw", 3))
    assert "leave --deal out" in said(register(tmp_path, "--deal", 2))


def rows_file(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "inputs": PIXELS[:6, None],
        "labels": LABELS[:6],
        "clients": np.array(["a", "b", "a", "b", "c", "a"]),
        "records": np.array(list("uvwxyz")),
        "subjects": np.arange(6),
    }
    arrays.update(changes)
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_an_npz_keeps_its_clients_or_is_dealt(tmp_path: Path, service: Service) -> None:
    path = rows_file(tmp_path / "rows.npz")
    assert register(path).exit_code == 0
    assert service.owners() == {"a": ["u", "w", "z"], "b": ["v", "x"], "c": ["y"]}
    assert register(path, "--at-least", 2).exit_code == 0
    assert service.owners() == {"a": ["u", "w", "z"], "b": ["v", "x"]}
    assert service.rows["subjects"].tolist() == [0, 1, 2, 3, 5]
    assert np.array_equal(service.rows["inputs"], PIXELS[[0, 1, 2, 3, 5], None])
    assert "leave --deal out" in said(register(path, "--deal", 2))
    bare = rows_file(tmp_path / "bare.npz", clients=None)
    assert "deal them with --deal" in said(register(bare))
    assert (
        register(bare, "--deal", 2, "--class", "x", "--class", "y", "--class", "z").exit_code
        == 0
    )
    assert sorted(map(len, service.owners().values())) == [3, 3]
    assert service.manifest["classes"] == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": None, "records": None}, "train_images: missing"),
        ({"labels": None}, "labels: missing"),
        ({"labels": LABELS[:5]}, "labels: must hold exactly one"),
        ({"labels": LABELS[:6].astype(float)}, "labels integers"),
        ({"labels": np.full(6, 2**40)}, "count from 0"),
        ({"clients": np.array([1.5] * 6)}, "clients: must be"),
        ({"clients": np.array([b"a"] * 6)}, "clients: must be"),
        ({"clients": np.array(["a"] * 5)}, "must hold exactly one"),
        ({"label_names": np.array("x")}, "label_names"),
    ],
)
def test_odd_rows_are_named(
    changes: dict[str, Any], message: str, tmp_path: Path, service: Service
) -> None:
    assert message in said(register(rows_file(tmp_path / "rows.npz", **changes)))
    assert service.manifest == {}


def test_a_format_is_told_or_asked_for(tmp_path: Path, service: Service) -> None:
    assert "of several formats or none" in said(register(tmp_path))
    mixed = leaf(mnist(tmp_path))
    assert "name one of idx, leaf" in said(register(mixed))
    assert register(mixed, "--format", "leaf").exit_code == 0
    assert "nina" in service.owners()
    (tmp_path / "odd").write_bytes(b"PK")
    assert "not a readable .npz" in said(register(tmp_path / "odd"))
    assert "leave --coarse out" in said(register(mixed, "--format", "leaf", "--coarse"))
    assert "leave --mask-value out" in said(
        register(mixed, "--format", "leaf", "--mask-value", 1)
    )
