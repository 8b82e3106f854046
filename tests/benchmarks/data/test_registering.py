"""`python -m benchmarks.data` writes what `lethe model register network` reads: rows, owners."""

import gzip
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from benchmarks.data.__main__ import main
from tests.workers.cli.conftest import service
from tests.workers.cli.models.registering import Service, register, said

__all__ = ["service"]

PIXELS = np.arange(12 * 7 * 6, dtype=np.uint16).astype(np.uint8).reshape(12, 7, 6)
LABELS = (np.arange(12) % 3).astype(np.uint8)


def convert(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def converted(form: str, path: Path, *words: object) -> Path:
    """Return the .npz that the command wrote."""
    out = path.parent / "out.npz"
    result = convert(form, path, out, *words)
    assert result.exit_code == 0, result.output
    return out


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist(folder: Path) -> Path:
    files = {
        "train-images-idx3-ubyte.gz": PIXELS[:10],
        "train-labels-idx1-ubyte.gz": LABELS[:10],
        "t10k-images-idx3-ubyte.gz": PIXELS[10:],
        "t10k-labels-idx1-ubyte.gz": LABELS[10:],
    }
    folder.mkdir()
    for name, array in files.items():
        (folder / name).write_bytes(gzip.compress(idx(array)))
    return folder


@pytest.mark.parametrize("named", ["", "train-images-idx3-ubyte.gz"])
def test_idx_files_are_dealt(named: str, tmp_path: Path, service: Service) -> None:
    out = converted("idx", mnist(tmp_path / "mnist") / named)
    assert "deal them with --deal" in said(register(out))
    result = register(out, "--deal", 3)
    assert result.exit_code == 0, result.exception
    assert np.array_equal(service.rows["inputs"], PIXELS[:10, None])  # the test pair stays here
    assert service.rows["labels"].tolist() == LABELS[:10].tolist()
    assert service.manifest["classes"] == ["0", "1", "2"]
    with np.load(out) as arrays:
        assert np.array_equal(arrays["test_images"][..., 0], PIXELS[10:])
        assert arrays["test_labels"].tolist() == LABELS[10:].tolist()


def test_idx_labels_lie_beside_their_images(tmp_path: Path) -> None:
    folder = mnist(tmp_path / "mnist")
    (folder / "train-labels-idx1-ubyte.gz").unlink()
    refused = convert("idx", folder, tmp_path / "out.npz")
    assert refused.exit_code == 1
    assert "must lie beside" in refused.output
    assert "named train-images" in convert("idx", tmp_path, tmp_path / "out.npz").output
    assert not (tmp_path / "out.npz").exists()


def cifar(folder: Path, rows: NDArray[np.uint8]) -> Path:
    batches = {
        "train": {"data": rows[:4], "fine_labels": [5, 0, 1, 2], "coarse_labels": [1, 0, 0, 1]},
        "test": {"data": rows[4:], "fine_labels": [3], "coarse_labels": [1]},
        "meta": {"fine_label_names": list("abcdef"), "coarse_label_names": ["low", "high"]},
    }
    folder.mkdir()
    for name, batch in batches.items():
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return folder


def test_cifar_pickles_and_their_superclasses(tmp_path: Path, service: Service) -> None:
    rows = np.random.default_rng(0).integers(256, size=(5, 3072), dtype=np.uint8)
    folder = cifar(tmp_path / "cifar", rows)
    result = register(converted("cifar", folder), "--deal", 2, "--network", "resnet18")
    assert result.exit_code == 0, result.exception
    assert np.array_equal(service.rows["inputs"].reshape(4, -1), rows[:4])
    assert service.rows["labels"].tolist() == [5, 0, 1, 2]
    assert service.manifest["classes"] == list("abcdef")
    assert register(converted("cifar", folder, "--coarse"), "--deal", 2).exit_code == 0
    assert service.rows["labels"].tolist() == [1, 0, 0, 1]
    assert service.manifest["network"]["parameters"]["classes"] == 2


def written(path: Path, users: dict[str, list[int]]) -> None:
    data = {
        user: {"x": [[shade / 255] * 784 for shade in shades], "y": shades}
        for user, shades in users.items()
    }
    counts = [len(shades) for shades in users.values()]
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(
        json.dumps({"users": list(users), "num_samples": counts, "user_data": data})
    )


def leaf(folder: Path) -> Path:
    written(folder / "train/all_0.json", {"nina": [1, 2, 3], "omar": [4], "paul": [5, 6]})
    written(folder / "test/all_0.json", {"omar": [7, 8, 9]})
    return folder


def test_the_writers_of_leaf_are_the_clients(tmp_path: Path, service: Service) -> None:
    folder = leaf(tmp_path / "femnist")
    out = converted("leaf", folder)
    result = register(out)
    assert result.exit_code == 0, result.exception
    shades = service.rows["inputs"][:, 0, 0, 0].tolist()
    assert shades == service.rows["labels"].tolist() == [1, 2, 3, 4, 5, 6]
    assert service.rows["clients"].tolist() == ["nina"] * 3 + ["omar"] + ["paul"] * 2
    assert len(service.manifest["classes"]) == 62
    # Omar's rows of the test set do not count. Ids stay those of the rows in the files.
    assert register(out, "--at-least", 2).exit_code == 0
    assert service.owners() == {
        "nina": ["record-0", "record-1", "record-2"],
        "paul": ["record-4", "record-5"],
    }
    assert "leave --deal out" in said(register(out, "--deal", 2))
    alone = converted("leaf", folder / "train/all_0.json")
    assert register(alone, "--network", "logistic").exit_code == 0
    assert service.rows["inputs"][:, 0] == pytest.approx((np.arange(1, 7) / 255 - 0.5) / 0.5)


def test_options_of_other_formats_are_refused(tmp_path: Path) -> None:
    folder, out = leaf(tmp_path / "femnist"), tmp_path / "out.npz"
    assert "leave --coarse out" in convert("leaf", folder, out, "--coarse").output
    for words in (["--at-least", 2], ["--draw", 1]):
        assert "give --at-least and --draw to it" in convert("leaf", folder, out, *words).output
    assert "no CIFAR" in convert("cifar", folder, out).output
    assert "no .json" in convert("leaf", mnist(tmp_path / "mnist"), out).output
    assert convert("npz", folder, out).exit_code == 2
    assert not out.exists()
