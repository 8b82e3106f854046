"""`lethe model register network --training`: every member of the manifest's training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.schemas.families.networks import Training
from tests.workers.cli.models.registering import Service, register, said

EVERYTHING: dict[str, Any] = {
    "rounds": 3,
    "seed": 5,
    "participation": 0.5,
    "min_clients": 2,
    "max_norm": 30.0,
    "timeout": 60.0,
    "local": {
        "epochs": 2.0,
        "batch_size": 16,
        "optimizer": "adamw",
        "learning_rate": 0.01,
        "decay": 0.99,
        "momentum": 0.0,
        "weight_decay": 0.1,
        "clip_norm": 1.0,
        "loss": "cross-entropy+dice",
        "augment": "crop-flip",
        "precision": "bfloat16",
    },
    "server": {
        "optimizer": "yogi",
        "learning_rate": 0.1,
        "momentum": 0.5,
        "beta1": 0.8,
        "beta2": 0.95,
        "tau": 0.01,
    },
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npz"
    images = np.arange(4 * 64, dtype=np.uint8).reshape(4, 1, 8, 8)
    np.savez(path, inputs=images, labels=np.arange(4) % 2, clients=np.array(list("abab")))
    return path


def written(folder: Path, training: Any) -> Path:
    path = folder / "training.json"
    path.write_text(training if isinstance(training, str) else json.dumps(training))
    return path


def test_every_member_reaches_the_service(rows: Path, service: Service) -> None:
    assert register(rows, "--training", written(rows.parent, EVERYTHING)).exit_code == 0
    assert service.manifest["training"] == EVERYTHING
    every = Training.model_fields
    assert set(EVERYTHING) == set(every)  # otherwise this file lags behind the schema
    assert "classes: " in said(register(rows, "--class", "x"))
    assert "name each once" in said(register(rows, "--class", "x", "--class", "x"))


def test_options_fill_what_the_file_leaves_out(rows: Path, service: Service) -> None:
    file = written(rows.parent, {"local": {"optimizer": "adam", "epochs": 3}, "seed": 9})
    words = ["--training", file, "--rounds", 4, "--learning-rate", 0.02]
    assert register(rows, *words).exit_code == 0
    sent = Training(
        rounds=4, seed=9, local={"optimizer": "adam", "epochs": 3, "learning_rate": 0.02}
    )
    assert service.manifest["training"] == sent.model_dump()
    assert register(rows).exit_code == 0
    assert service.manifest["training"] == Training(rounds=10).model_dump()


@pytest.mark.parametrize(
    ("training", "words", "message"),
    [
        ({"rounds": 3}, ["--rounds", 3], "rounds is named by --rounds too"),
        ({"local": {"batch_size": 8}}, ["--batch-size", 4], "local.batch_size is named by"),
        ({"local": {"batchsize": 8}}, [], "local.batchsize: Extra inputs"),
        ({"local": {"optimizer": "lion"}}, [], "local.optimizer: Input should be 'sgd'"),
        ({"local": 3}, [], "local: Input should be"),
        ({"participation": 2}, [], "participation: must be a number from 0"),
        ({"local": {"optimizer": "adam", "momentum": 0.9}}, [], "momentum: only for"),
        ({"server": {"tau": 0}}, [], "tau: must be a number from 0"),
        ("[]", [], "one JSON object"),
        ("{", [], "not JSON"),
        ('{"max_norm": NaN}', [], "max_norm: Input should be a finite number"),
        ({}, ["--momentum", 1], "momentum: must be a number"),
    ],
)
def test_what_no_worker_could_train_is_not_sent(
    training: Any, words: list[Any], message: str, rows: Path, service: Service
) -> None:
    refused = register(rows, "--training", written(rows.parent, training), *words)
    assert message in said(refused)
    assert service.manifest == {}


def test_the_shape_of_the_network_beside_the_data(rows: Path, service: Service) -> None:
    words = ["--network", "vit-lite", "--shape", "layers=2", "--shape", "embedding=32"]
    assert register(rows, *words).exit_code == 0
    derived = {"channels": 1, "height": 8, "width": 8, "classes": 2}
    assert service.manifest["network"] == {
        "id": "vit-lite",
        "parameters": {**derived, "layers": 2, "embedding": 32},
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["height=9"], "the data say them"),
        (["layers"], "NAME=VALUE"),
        (["layers=two"], "NAME=VALUE"),
        (["layers=-1"], "NAME=VALUE"),
        (["layers=2", "layers=3"], "each NAME once"),
    ],
)
def test_odd_shapes_are_refused(
    words: list[str], message: str, rows: Path, service: Service
) -> None:
    given = [part for word in words for part in ("--shape", word)]
    assert message in said(register(rows, "--network", "vit-lite", *given))
    assert service.manifest == {}
