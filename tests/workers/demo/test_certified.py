"""What the demonstration of certified removal registers."""

import io
from pathlib import Path

import numpy as np
import pytest

from app.schemas.families.networks import NewNetwork
from workers.data.images import LabelledImages
from workers.demo import certified
from workers.demo.network import DIGITS
from workers.demo.network_measure import accuracies
from workers.registration.network import NetworkRegistration, prepare_network
from workers.training.fedavg.client.data import image_data
from workers.training.networks.registry import network
from workers.training.networks.weights import encode_weights, initial_weights


@pytest.fixture(scope="module")
def images() -> LabelledImages:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(30, 4, 3, 2)).astype(np.uint8)
    held = np.arange(30) >= 20
    return LabelledImages(pixels, np.arange(30) % 3, ("a", "b", "c"), held)


@pytest.fixture(scope="module")
def prepared(images: LabelledImages) -> NetworkRegistration:
    owners = np.array([f"c{row % 2}" for row in range(30)])
    training = {"rounds": DIGITS.rounds, "local": dict(DIGITS.local)}
    options = certified.options(certified.METHOD, images, training)
    return prepare_network(images, owners, ref="demo", options=options)


def test_the_registration_is_one_that_can_be_certified(prepared: NetworkRegistration) -> None:
    wanted = NewNetwork.model_validate(prepared.manifest)
    assert wanted.method == "certified-newton"
    assert wanted.training.local.weight_decay > 0
    assert wanted.input_shape == [24]


def test_pixels_are_those_that_other_networks_see_and_none_is_too_long(
    images: LabelledImages, prepared: NetworkRegistration
) -> None:
    with np.load(io.BytesIO(prepared.npz)) as arrays:
        inputs = arrays["inputs"]
    seen = image_data(images.images, images.labels).inputs[:20].flatten(1).numpy()
    assert inputs.dtype == np.float32
    assert inputs.tobytes() == np.ascontiguousarray(seen).tobytes()
    longest = np.sqrt(1 + np.square(inputs.astype(np.float64)).sum(1)).max()
    row_norm = prepared.manifest["settings"]["certified-newton"]["row_norm"]
    assert longest <= np.sqrt(1 + 24) <= row_norm


def test_a_logistic_head_is_measured_on_flat_pixels(
    images: LabelledImages, prepared: NetworkRegistration
) -> None:
    named = network("logistic", {"features": 24, "classes": 3})
    weights = initial_weights(named, 0)
    file = encode_weights(named.id, named.parameters, weights)
    found = accuracies(file, images, prepared, prepared.records[:5])
    rows = image_data(images.images, images.labels).inputs.flatten(1).numpy()
    logits = rows @ weights["head.weight"].numpy().T + weights["head.bias"].numpy()
    right = logits.argmax(1) == images.labels
    assert found.test == pytest.approx(right[20:].mean())
    assert found.forget == pytest.approx(right[:5].mean())


def test_a_perceptron_over_given_features_is_as_wide_as_may_be(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for features, hidden in ((16, certified.HIDDEN), (700, 14)):
        file = tmp_path / f"{features}.npz"
        np.savez(
            file,
            features=rng.normal(size=(40, features)),
            labels=np.arange(40) % 3,
            clients=np.arange(40) % 4,
        )
        made = certified.of_features(file, {"rounds": 2, "local": dict(DIGITS.local)})
        wanted = NewNetwork.model_validate(made.manifest)
        assert wanted.method == "noisy-finetuning"
        assert wanted.network.parameters["hidden"] == hidden
        assert wanted.network.parameters["features"] == features
