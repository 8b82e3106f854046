"""Images in .npz files, the digits, and the partitions over clients."""

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.data.digits import load_digit_images, load_digits
from workers.data.image_npz import load_image_npz
from workers.data.images import LabelledImages
from workers.data.owners import Ownership
from workers.data.partition import iid, natural
from workers.errors import DatasetError
from workers.registration.network import NetworkOptions
from workers.registration.network_source import Source, prepare

GOOD: dict[str, Any] = {
    "train_images": np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3),
    "train_labels": np.array([0, 1, 2, 0, 1], dtype=np.uint8),
    "test_images": np.zeros((2, 4, 3), dtype=np.uint8),
    "test_labels": np.array([2, 0], dtype=np.uint8),
    "label_names": np.array(["a", "b", "c"]),
}


def saved(folder: Path, **changes: Any) -> Path:
    arrays = {name: array for name, array in {**GOOD, **changes}.items() if array is not None}
    np.savez(folder / "images.npz", **arrays)
    return folder / "images.npz"


def test_a_file_of_images(tmp_path: Path) -> None:
    got = load_image_npz(saved(tmp_path))
    assert got.images.shape == (7, 4, 3, 1)
    assert np.array_equal(got.images[:5, ..., 0], GOOD["train_images"])
    assert got.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert got.is_test.tolist() == [False] * 5 + [True] * 2
    assert got.label_names == ("a", "b", "c")


def test_keras_names_columns_and_no_test(tmp_path: Path) -> None:
    path = tmp_path / "k.npz"
    x, y = np.zeros((3, 4, 4, 3), dtype=np.uint8), np.array([[1], [0], [1]])
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    got = load_image_npz(path)
    assert got.images.shape == (6, 4, 4, 3)
    assert got.labels.tolist() == [1, 0, 1] * 2
    only = load_image_npz(saved(tmp_path, test_images=None, test_labels=None, label_names=None))
    assert len(only.labels) == 5
    assert not only.is_test.any()
    assert only.label_names == ("0", "1", "2")


def test_a_file_may_say_whose_each_image_is(tmp_path: Path) -> None:
    assert load_image_npz(saved(tmp_path)).clients is None
    owners = {"train_clients": np.arange(5), "test_clients": np.array([7, 8])}
    got = load_image_npz(saved(tmp_path, **owners))
    assert got.clients is not None
    assert got.clients.tolist() == list("0123478")
    whole = {"test_images": None, "test_labels": None, "train_clients": np.array(list("abcab"))}
    got = load_image_npz(saved(tmp_path, **whole))
    assert got.clients is not None
    assert got.clients.tolist() == list("abcab")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_clients": np.arange(5)}, "test_clients: must be"),
        ({"test_clients": np.arange(2)}, "train_clients: must be"),
        (
            {"train_clients": np.arange(4), "test_clients": np.arange(2)},
            "train_clients: must be",
        ),
        ({"train_clients": np.ones(5), "test_clients": np.arange(2)}, "train_clients: must be"),
        ({"train_subjects": np.arange(5)}, "test_subjects: must be"),
        ({"train_subjects": np.ones((5, 1), int)}, "train_subjects: must be"),
        ({"train_identity_email": np.array(["a"] * 4)}, "train_identity_email: must be"),
        ({"test_identity_email": np.array(["a"] * 5)}, "test_identity_email: must be"),
        ({"train_identity_Mail": np.array(["a"] * 5)}, "train_identity_Mail: the kind"),
        ({"identity_email": np.array(["a"] * 5)}, "call it train_identity_email"),
        ({"subjects": np.arange(5)}, "call it train_subjects"),
        ({"train_images": None}, "train_images: missing"),
        ({"train_labels": None}, "train_labels: missing"),
        ({"test_labels": None}, "test_labels: missing"),
        ({"test_images": None}, "test_images: missing"),
        ({"train_images": GOOD["train_images"].astype(float)}, "train_images: .* bytes"),
        ({"train_images": np.zeros((5, 12), dtype=np.uint8)}, "train_images: .* bytes"),
        ({"train_images": np.zeros((0, 4, 3), dtype=np.uint8)}, "train_images: .* bytes"),
        ({"train_images": np.array([None] * 5)}, "readable"),
        ({"test_images": np.zeros((2, 4, 4), dtype=np.uint8)}, "height, width and channels of"),
        ({"train_labels": GOOD["train_labels"][:4]}, "train_labels: .* each image"),
        ({"train_labels": np.zeros(5)}, "train_labels: .* integer"),
        ({"train_labels": np.array([0, -1, 0, 0, 0])}, "train_labels: .* count from 0"),
        ({"train_labels": np.full(5, 2**40)}, "train_labels: .* count from 0"),
        ({"label_names": np.array(["a", "b"])}, "has no name"),
        ({"label_names": np.array([1, 2, 3])}, "label_names: .* strings"),
    ],
)
def test_odd_arrays_are_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        load_image_npz(saved(tmp_path, **changes))


def test_people_of_images_reach_the_upload_as_digests(tmp_path: Path) -> None:
    """The oracle is hashlib; ann is in a row that is learned and one that is held out."""
    emails = np.array(["Ann@X.org", "", "bob@x.org", "", "bob@x.org"])
    path = saved(
        tmp_path,
        train_clients=np.array(list("ccddd")),
        test_clients=np.array(["c", "c"]),
        train_subjects=np.array(list("stuvw")),
        test_subjects=np.array(["x", "y"]),
        train_identity_email=emails,
        test_identity_email=np.array(["", "ann@x.org"]),
        train_identity_customer=np.array([11, 12, 13, 14, 15]),
    )
    source = Source(path, owners=Ownership(at_least=3))  # drops client c
    sent = np.load(io.BytesIO(prepare(source, ref="x", options=NetworkOptions()).npz))
    assert sent["records"].tolist() == ["record-2", "record-3", "record-4"]
    assert sent["subjects"].tolist() == list("uvw")
    bob, ann = (hashlib.sha256(one).digest() for one in (b"bob@x.org", b"ann@x.org"))
    assert [row[:32].tobytes() for row in sent["identity_email"]] == [bob, bytes(32), bob]
    numbers = [hashlib.sha256(one).digest() for one in (b"13", b"14", b"15")]
    assert [row[:32].tobytes() for row in sent["identity_customer"]] == numbers
    held = dict(zip(sent["held_out_records"], sent["held_out_identity_email"], strict=True))
    assert list(held) == ["record-5", "record-6"]
    assert [row[:32].tobytes() for row in held.values()] == [bytes(32), ann]
    assert not sent["held_out_identity_customer"].any()


def test_other_files_are_refused(tmp_path: Path) -> None:
    good = saved(tmp_path).read_bytes()
    for content in (b"", b"text", good[: len(good) // 2], good[:80] + b"\xff" + good[81:]):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(DatasetError):
            load_image_npz(tmp_path / "bad.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DatasetError, match="one array"):
        load_image_npz(tmp_path / "one.npy")
    with pytest.raises(DatasetError, match="readable"):
        load_image_npz(tmp_path / "nowhere.npz")


ROOT = Path(__file__).resolve().parents[3].parent / "shared" / "data"
DATA = Path(os.environ.get("LETHE_DATA", ROOT))


@pytest.mark.skipif(not (DATA / "mnist.npz").exists(), reason="the real files are not here")
def test_the_real_files() -> None:
    mnist = load_image_npz(DATA / "mnist.npz")
    assert mnist.images.shape == (70_000, 28, 28, 1)
    assert int(mnist.is_test.sum()) == 10_000
    cifar = load_image_npz(DATA / "cifar10.npz")
    assert cifar.images.shape == (14_000, 32, 32, 3)
    assert len(cifar.label_names) == 10


def test_the_digits_as_images_are_those_as_features() -> None:
    images = load_digit_images()
    assert images.images.shape == (1797, 8, 8, 1)
    assert images.images.max() == 240
    assert int(images.is_test.sum()) == 360
    features = load_digits(clients=3).features
    assert np.array_equal(images.images.reshape(-1, 64) / 15, features)


BAD_IMAGES: list[tuple[dict[str, Any], str]] = [
    ({"images": np.zeros((2, 3, 3), dtype=np.uint8)}, "images"),
    ({"images": np.zeros((2, 3, 3, 1))}, "images"),
    ({"images": np.zeros((2, 0, 3, 1), dtype=np.uint8)}, "images"),
    ({"labels": np.array([0])}, "labels"),
    ({"labels": np.array([0, 2])}, "label_names"),
    ({"labels": np.array([0, -1])}, "label_names"),
    ({"labels": np.array([0, 1], dtype=np.uint8)}, "int64"),
    ({"is_test": np.array([True])}, "is_test"),
    ({"clients": np.array(["a", "b", "c"])}, "clients"),
    ({"subjects": np.array(["a", "b", "c"])}, "subjects"),
    ({"identities": {"email": np.array(["a"])}}, "identity_email"),
]


@pytest.mark.parametrize(("change", "message"), BAD_IMAGES)
def test_what_is_returned_is_checked(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "images": np.zeros((2, 3, 3, 1), dtype=np.uint8),
        "labels": np.array([0, 1]),
        "label_names": ("a", "b"),
        "is_test": np.zeros(2, dtype=bool),
    }
    LabelledImages(**good)
    with pytest.raises(DatasetError, match=message):
        LabelledImages(**{**good, **change})


def test_an_even_partition_is_dealt_at_random() -> None:
    owners = iid(23, 4, seed=1)
    assert sorted(np.bincount(owners).tolist()) == [5, 6, 6, 6]
    assert owners.tolist() == iid(23, 4, seed=1).tolist()
    assert owners.tolist() != iid(23, 4, seed=2).tolist()
    assert owners.tolist() != sorted(owners.tolist())
    # Labels are spread: each client's share of a label is near a tenth.
    labels = np.arange(10_000) % 10
    deal = iid(10_000, 10, seed=3)
    for client in range(10):
        assert np.abs(np.bincount(labels[deal == client]) / 1000 - 0.1).max() < 0.04
    for clients in (0, 24):
        with pytest.raises(DatasetError, match="at least one row"):
            iid(23, clients, seed=0)


def test_a_natural_partition_keeps_its_owners() -> None:
    owners = np.array(["cy", "al", "bo", "al", "cy", "cy"])
    assert natural(owners).tolist() == [2, 0, 1, 0, 2, 2]
    assert natural(owners, at_least=2).tolist() == [1, 0, -1, 0, 1, 1]
    two = natural(owners, clients=2, seed=0)
    assert sorted(set(two.tolist())) == [-1, 0, 1]
    seen = {tuple(natural(owners, clients=1, seed=seed).tolist()) for seed in range(20)}
    assert len(seen) == 3
    assert natural(np.array([30, 4, 30])).tolist() == [1, 0, 1]
    for arguments in ({"at_least": 4}, {"clients": 4}, {"clients": 0}):
        with pytest.raises(DatasetError, match="clients have"):
            natural(owners, **arguments)
    with pytest.raises(DatasetError, match="owners"):
        natural(owners[None])
