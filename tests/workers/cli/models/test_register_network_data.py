"""`lethe model register network` from an .npz, with the clients the data have or dealt."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.cli.models.registering import Service, register, said
from workers.data.image_npz import load_image_npz
from workers.registration.network import deal_out

PIXELS = np.arange(12 * 7 * 6, dtype=np.uint16).astype(np.uint8).reshape(12, 7, 6)
LABELS = (np.arange(12) % 3).astype(np.uint8)


def images(path: Path, **more: Any) -> Path:
    np.savez(
        path,
        train_images=PIXELS[:10],
        train_labels=LABELS[:10],
        test_images=PIXELS[10:],
        test_labels=LABELS[10:],
        **more,
    )
    return path


def test_images_without_clients_are_dealt_at_random(tmp_path: Path, service: Service) -> None:
    path = images(tmp_path / "images.npz")
    result = register(path, "--deal", 3)
    assert result.exit_code == 0, result.exception
    assert np.array_equal(service.rows["inputs"], PIXELS[:10, None])  # the test pair stays here
    assert service.rows["labels"].tolist() == LABELS[:10].tolist()
    assert service.manifest["classes"] == ["0", "1", "2"]
    first = service.owners()
    assert sorted(map(len, first.values())) == [3, 3, 4]
    register(path, "--deal", 3, "--seed", 1)
    assert service.owners() != first


def test_rows_without_clients_are_not_guessed_about(tmp_path: Path, service: Service) -> None:
    path = images(tmp_path / "images.npz")
    assert "deal them with --deal" in said(register(path))
    assert "name how many clients" in said(register(path, "--alpha", 1))
    assert "--at-least" in said(register(path, "--deal", 2, "--at-least", 2))
    assert "11 clients for 10 rows" in said(register(path, "--deal", 11))
    assert service.manifest == {}


def test_clients_that_images_name_are_kept(tmp_path: Path, service: Service) -> None:
    owners = {
        "train_clients": np.array(list("aaabbbbccd")),
        "test_clients": np.array(["d"] * 2),
    }
    path = images(tmp_path / "images.npz", **owners)
    assert register(path).exit_code == 0
    assert service.rows["clients"].tolist() == list("aaabbbbccd")
    assert np.array_equal(service.rows["inputs"], PIXELS[:10, None])
    # Rows of the test pair are not counted. Ids remain those of the rows in the file.
    assert register(path, "--at-least", 3).exit_code == 0
    assert service.owners() == {
        "a": ["record-0", "record-1", "record-2"],
        "b": ["record-3", "record-4", "record-5", "record-6"],
    }
    drawn = set()
    for seed in range(8):
        words = ["--at-least", 3, "--draw", 1, "--seed", seed]
        assert register(path, *words).exit_code == 0
        drawn.add(tuple(service.owners()))
    assert drawn == {("a",), ("b",)}
    assert "only 2 clients" in said(register(path, "--at-least", 3, "--draw", 3))
    assert "leave --deal out" in said(register(path, "--deal", 2))
    assert register(path, "--network", "logistic").exit_code == 0
    pixels = PIXELS[:10].reshape(10, -1).astype(np.float32)
    assert service.rows["inputs"] == pytest.approx((pixels / 255 - 0.5) / 0.5)


def test_a_skewed_deal_is_that_of_the_experiments(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "images.npz"
    np.savez(path, train_images=PIXELS, train_labels=LABELS)
    assert register(path, "--deal", 3, "--alpha", 0.5, "--seed", 4).exit_code == 0
    dealt = deal_out(load_image_npz(path), 3, 0.5, 4)
    assert service.rows["clients"].tolist() == dealt.tolist()


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
        ({"inputs": None, "train_images": PIXELS}, "subjects: call it train_subjects"),
        ({"labels": LABELS[:5]}, "labels: must hold exactly one"),
        ({"labels": LABELS[:6].astype(float)}, "labels must be integers"),
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


def test_a_file_is_an_npz_and_a_folder_holds_masks(tmp_path: Path, service: Service) -> None:
    assert "a folder must hold images/SITE/NAME.png" in said(register(tmp_path, "--class", "x"))
    (tmp_path / "odd").write_bytes(b"PK")
    assert "no known format" in said(register(tmp_path / "odd", "--label", "y"))
    path = images(tmp_path / "images.npz")
    assert "leave --mask-value out" in said(register(path, "--mask-value", 1))
    assert "write other rows as an .npz" in said(register(path, "--format", "masks"))
    assert "not a readable .npz" in said(register(tmp_path, "--format", "npz"))
    assert register(path, "--format", "cifar").exit_code == 2
    assert service.manifest == {}


def test_what_the_data_hold_out_is_sent_to_measure_by(tmp_path: Path, service: Service) -> None:
    path = images(tmp_path / "images.npz")
    assert register(path, "--deal", 3, "--send-holdout").exit_code == 0
    assert np.array_equal(service.rows["inputs"], PIXELS[:10, None])
    assert np.array_equal(service.rows["held_out_features"], PIXELS[10:, None])
    assert service.rows["held_out_labels"].tolist() == LABELS[10:].tolist()
    assert service.rows["held_out_records"].tolist() == ["record-10", "record-11"]
    assert set(service.rows["held_out_clients"].tolist()) == {"held-out"}
    inputs = np.arange(40, dtype=np.float32).reshape(10, 4)
    held = np.arange(10) % 5 == 0
    rows: dict[str, Any] = {
        "inputs": inputs,
        "labels": np.arange(10) % 3,
        "clients": np.array(list("aabbccaabb")),
        "identity_email": np.array([f"p{row}@example.org" for row in range(10)]),
    }
    np.savez(tmp_path / "rows.npz", is_test=held, **rows)
    words = (tmp_path / "rows.npz", "--network", "logistic")
    assert register(*words).exit_code == 0
    assert np.array_equal(service.rows["inputs"], inputs[~held])
    assert service.rows["held_out_records"].tolist() == ["0", "5"]
    assert "held_out_features" not in service.rows
    assert register(*words, "--send-holdout").exit_code == 0
    assert np.array_equal(service.rows["held_out_features"], inputs[held])
    assert service.rows["held_out_clients"].tolist() == ["a", "c"]
    assert len(service.rows["held_out_identity_email"]) == 2
    np.savez(tmp_path / "rows.npz", **rows)
    assert "no row is held out" in said(register(*words, "--send-holdout"))


def test_what_is_used_and_left_out_is_told_with_the_accuracy(
    tmp_path: Path, service: Service
) -> None:
    owners = {
        "train_clients": np.array(list("aaabbbbccd")),
        "test_clients": np.array(["d"] * 2),
    }
    path = images(tmp_path / "images.npz", **owners)
    result = register(path, "--at-least", 3, "--network", "logistic")
    assert result.exit_code == 0, result.exception
    *lines, ready, accuracy = result.stdout.splitlines()
    assert lines == [
        "12 rows of 42 numbers",
        "label: 3 classes, 0, 1, 2",
        "held out: 2 rows (by the data)",
        "left out: 3 rows of clients not chosen",
        "registered 7 records of 2 clients; training …",
    ]
    assert ready == "m is ready at version 1"
    assert re.fullmatch(r"accuracy on 2 held-out rows: [01]\.[05]00", accuracy)
    assert register(path).stdout.startswith("12 rows of 1 x 7 x 6 numbers\n")


def test_columns_of_a_table_are_told(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "rows.csv"
    rows = [f"{row % 2},{row},{row * 2},x" for row in range(12)]
    path.write_text("\n".join(["kind,f0,f1,note", *rows]) + "\n")
    words = ["--network", "mlp", "--shape", "hidden=4", "--label", "kind", "--features", "f*"]
    result = register(path, *words, "--deal", 2, "--holdout", "0.25")
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith(
        "12 rows, 2 features: f0, f1\nlabel kind: 2 classes, 0, 1\n"
    )
    assert "not used: note\n" in result.stdout
    assert "held out: 3 rows" in result.stdout
    assert "accuracy on 3 held-out rows: " in result.stdout
