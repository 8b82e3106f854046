"""`lethe model register network` from images and masks: sites are clients, Dice by default."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.workers.cli.models.registering import Service, register, said

Image = pytest.importorskip("PIL.Image")

PICTURE = np.arange(16 * 16, dtype=np.uint8).reshape(16, 16)
CLASSES = ["--class", "background", "--class", "tumour"]
WORDS = [*CLASSES, "--mask-value", 0, "--mask-value", 255, "--network", "res-unet"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for shift, name in enumerate(("north/1", "north/2", "south/1")):
        ink = (PICTURE + shift > 100).astype(np.uint8) * 255
        for kind, pixels in (("images", PICTURE + shift), ("masks", ink)):
            path = tmp_path / kind / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
    return tmp_path


def test_sites_are_clients_and_the_loss_has_dice(folder: Path, service: Service) -> None:
    result = register(folder, *WORDS, "--shape", "features=4")
    assert result.exit_code == 0, result.exception
    assert service.owners() == {
        "north": ["north/1.png", "north/2.png"],
        "south": ["south/1.png"],
    }
    assert np.array_equal(service.rows["inputs"][0, 0], PICTURE)
    assert np.array_equal(service.rows["labels"][0], PICTURE > 100)
    assert service.manifest["classes"] == ["background", "tumour"]
    shape = {"channels": 1, "height": 16, "width": 16, "classes": 2, "features": 4}
    assert service.manifest["network"] == {"id": "res-unet", "parameters": shape}
    assert service.manifest["training"]["local"]["loss"] == "cross-entropy+dice"
    assert register(folder, *WORDS, "--at-least", 2).exit_code == 0
    assert set(service.owners()) == {"north"}


def test_a_file_of_the_training_has_the_last_word_on_the_loss(
    folder: Path, tmp_path: Path, service: Service
) -> None:
    file = tmp_path / "training.json"
    file.write_text(json.dumps({"local": {"loss": "cross-entropy"}}))
    words = [*WORDS, "--format", "masks", "--training", file]
    assert register(folder, *words).exit_code == 0
    assert service.manifest["training"]["local"]["loss"] == "cross-entropy"
    # Only the images would be cropped, not their masks.
    file.write_text(json.dumps({"local": {"augment": "crop-flip"}}))
    assert "local.augment: for networks that label" in said(register(folder, *words))


def test_masks_and_labels_go_to_networks_that_learn_them(
    folder: Path, tmp_path: Path, service: Service
) -> None:
    assert "name them in the order" in said(register(folder, "--network", "res-unet"))
    assert "outside 0 to" in said(register(folder, *CLASSES, "--network", "res-unet"))
    assert "only res-unet learns masks" in said(
        register(folder, *WORDS, "--network", "simple-cnn")
    )
    assert "leave --deal out" in said(register(folder, *WORDS, "--deal", 2))
    images = np.stack([PICTURE] * 2)[:, None]
    np.savez(tmp_path / "rows.npz", inputs=images, labels=np.arange(2), clients=np.arange(2))
    refused = register(tmp_path / "rows.npz", "--network", "res-unet")
    assert "choose another network" in said(refused)
    np.savez(tmp_path / "bare.npz", inputs=images, labels=images[:, 0] % 2)
    words = ["--network", "res-unet", "--deal", 2]
    assert "leave --alpha out" in said(register(tmp_path / "bare.npz", *words, "--alpha", 1))
    assert register(tmp_path / "bare.npz", *words).exit_code == 0
    assert set(service.owners()) == {"client-00", "client-01"}
