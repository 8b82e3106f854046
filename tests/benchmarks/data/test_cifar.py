"""CIFAR folders as Python 2 and Python 3 pickle them, and pickles that want to run code."""

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.data.cifar import load_cifar
from benchmarks.data.plain_pickle import read_pickle
from workers.errors import DatasetError

RNG = np.random.default_rng(0)


def rows(n: int) -> Any:
    return RNG.integers(0, 256, (n, 3072), dtype=np.uint8)


def python2_string(data: bytes) -> bytes:
    """A str as Python 2 writes it: BINSTRING, four bytes of length."""
    return b"T" + struct.pack("<i", len(data)) + data


def python2(batch: dict[str, Any]) -> bytes:
    """A batch as the authors' Python 2 wrote it: every text is a BINSTRING."""
    out = b"\x80\x02}("
    for key, value in batch.items():
        out += python2_string(key.encode())
        if isinstance(value, np.ndarray):
            out += b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85"
            out += python2_string(b"b") + b"tR(K\1"
            out += (
                b"J" + struct.pack("<i", len(value)) + b"M" + struct.pack("<H", 3072) + b"\x86"
            )
            out += b"cnumpy\ndtype\n(" + python2_string(b"u1") + b"K\0K\1tR"
            out += (
                b"(K\3" + python2_string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
            )
            out += b"\x89" + python2_string(value.tobytes()) + b"tb"
        elif isinstance(value, list):
            out += b"]("
            for item in value:
                out += b"K" + bytes([item]) if isinstance(item, int) else python2_string(item)
            out += b"e"
    return out + b"u."


def cifar10(folder: Path, dump: Any) -> dict[str, Any]:
    written = {}
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        data = rows(2)
        batch = {"data": data, "labels": [1, 0]}
        written[name] = data
        (folder / name).write_bytes(dump(batch))
    (folder / "batches.meta").write_bytes(dump({"label_names": [b"cat", b"dog"]}))
    return written


def python3(batch: dict[str, Any]) -> bytes:
    return pickle.dumps({key.encode(): value for key, value in batch.items()}, protocol=2)


@pytest.mark.parametrize("dump", [python2, python3], ids=["python 2", "python 3"])
def test_cifar_10(dump: Any, tmp_path: Path) -> None:
    written = cifar10(tmp_path, dump)
    got = load_cifar(tmp_path)
    assert got.images.shape == (6, 32, 32, 3)
    for i, data in enumerate(written.values()):
        for j in range(2):
            image = got.images[2 * i + j]
            # Red, green and blue planes of 1,024, each row by row.
            assert image[5, 7].tolist() == [
                int(data[j, c * 1024 + 5 * 32 + 7]) for c in range(3)
            ]
    assert got.labels.tolist() == [1, 0] * 3
    assert got.is_test.tolist() == [False] * 4 + [True] * 2
    assert got.label_names == ("cat", "dog")
    (tmp_path / "batches.meta").unlink()
    assert load_cifar(tmp_path).label_names == ("0", "1")


def test_cifar_100(tmp_path: Path) -> None:
    for name in ("train", "test"):
        batch = {"data": rows(3), "fine_labels": [5, 0, 2], "coarse_labels": [1, 1, 0]}
        (tmp_path / name).write_bytes(python3(batch))
    fine, coarse = load_cifar(tmp_path), load_cifar(tmp_path, coarse=True)
    assert fine.labels.tolist() == [5, 0, 2] * 2
    assert len(fine.label_names) == 6
    assert coarse.labels.tolist() == [1, 1, 0] * 2
    assert np.array_equal(fine.images, coarse.images)


class Runs:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def bomb() -> list[Any]:
    """Seven levels of a hundred references: 10^14 entries if it were copied out."""
    value: list[Any] = [1]
    for _ in range(7):
        value = [value] * 100
    return value


GLOBAL = b"\x80\x02c%s\n%s\n."
ATTACKS: dict[str, bytes] = {
    "os.system": pickle.dumps(Runs(os.system, "touch pwned")),
    "eval": pickle.dumps(Runs(eval, "1")),
    "getattr": pickle.dumps(Runs(getattr, "", "join")),
    "a name alone": GLOBAL % (b"os", b"getcwd"),
    "numpy.load": GLOBAL % (b"numpy", b"load"),
    "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__call__\x93.",
    "_codecs.decode": GLOBAL % (b"_codecs", b"decode"),
    "another encoding": b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x04\0\0\0zlib\x86R.",
    "copyreg extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"\x80\x02K\x01Q.",
    "an object array": pickle.dumps(np.array([Runs(os.getcwd)], dtype=object), protocol=2),
    "a float array": pickle.dumps(np.zeros(3), protocol=2),
    "an array without values": b"\x80\x02cnumpy\nndarray\n)R.",
    "the stand-in itself": b"\x80\x02cnumpy\nndarray\n.",
    "too deep": pickle.dumps(nested(20)),
    "a list in itself": b"\x80\x02]q\0h\0a.",
    "a length of 2^62": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",
    "a memo of 2^32": b"\x80\x02Nr\xff\xff\xff\xff0.",
    "a set": pickle.dumps({1, 2}),
    "empty": b"",
    "cut": pickle.dumps({"a": [1, 2, 3]})[:-4],
    "no pickle": b"hello",
    "text": b"\xff" * 100,
}


@pytest.mark.parametrize("what", ATTACKS)
def test_nothing_is_executed(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "attack"
    path.write_bytes(ATTACKS[what])
    with pytest.raises(DatasetError):
        read_pickle(path)
    assert [file.name for file in tmp_path.iterdir()] == ["attack"]


def test_many_references_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(pickle.dumps(bomb(), protocol=2))
    assert len(read_pickle(path)) == 100


def test_the_attack_would_have_worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(ATTACKS["os.system"])
    assert (tmp_path / "pwned").exists()


@given(st.integers(0, 10**6), st.integers(1, 255), st.integers(0, 3))
@settings(deadline=None, max_examples=300)
def test_a_flipped_byte_is_read_or_refused(place: int, change: int, cut: int) -> None:
    good = python2({"labels": [1, 0], "data": np.zeros((1, 3072), dtype=np.uint8)})
    head = bytearray(good[:400] + good[-20:])
    head[place % len(head)] ^= change
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"lethe-flip-{os.getpid()}"
    try:
        path.write_bytes(bytes(head[: len(head) - cut]))
        read_pickle(path)
    except DatasetError:
        pass
    finally:
        path.unlink()


GOOD = {"data": rows(2), "labels": [1, 0]}
BAD_BATCHES: list[tuple[str, Any, str]] = [
    ("no dictionary", [1], "dictionary"),
    ("a key that is a number", {3: 1}, "name"),
    ("no data", {b"labels": [0]}, "data"),
    ("data of another width", {b"data": rows(2)[:, :3000].copy(), b"labels": [0, 1]}, "data"),
    ("data as a list", {b"data": [[0] * 3072], b"labels": [0]}, "data"),
    ("no labels", {b"data": rows(2)}, "labels"),
    ("a label too few", {b"data": rows(2), b"labels": [0]}, "labels"),
    ("a text as label", {b"data": rows(1), b"labels": [b"0"]}, "labels"),
    ("a label that is true", {b"data": rows(1), b"labels": [True]}, "labels"),
    ("a negative label", {b"data": rows(1), b"labels": [-1]}, "labels"),
    ("a label too large", {b"data": rows(1), b"labels": [2**40]}, "labels"),
]


@pytest.mark.parametrize(
    ("what", "batch", "message"), BAD_BATCHES, ids=[b[0] for b in BAD_BATCHES]
)
def test_odd_batches_are_named(what: str, batch: Any, message: str, tmp_path: Path) -> None:
    cifar10(tmp_path, python3)
    (tmp_path / "data_batch_2").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DatasetError, match=message):
        load_cifar(tmp_path)


def test_folders_that_are_no_cifar(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no CIFAR"):
        load_cifar(tmp_path)
    cifar10(tmp_path, python3)
    with pytest.raises(DatasetError, match="no CIFAR"):
        load_cifar(tmp_path, coarse=True)
    (tmp_path / "batches.meta").write_bytes(python3({"label_names": [b"cat"]}))
    with pytest.raises(DatasetError, match="has no name"):
        load_cifar(tmp_path)
    (tmp_path / "test_batch").unlink()
    with pytest.raises(DatasetError, match="readable"):
        load_cifar(tmp_path)
