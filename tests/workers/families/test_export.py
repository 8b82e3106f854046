"""Exports predict what Lethe predicts, in the programs that they are made for."""

import io
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from lethe.estimators import (
    ExactGaussianNB,
    ExactMultinomialNB,
    ExactRidgeClassifier,
    ExactRidgeRegressor,
)
from tests import small, small_network
from workers.artifacts import encode_head
from workers.errors import ArtifactError
from workers.families import base
from workers.families.network import export as network_export
from workers.families.ridge import export as ridge_export
from workers.methods.ridge.base import RidgeConfig
from workers.training.networks.registry import known, network
from workers.training.networks.weights import encode_weights, with_weights

FEATURES = 7
# Small ones: the tests cover the operators of each architecture.
SHAPES: dict[str, dict[str, int]] = {
    "logistic": {"features": 6, "classes": 3},
    "mit-b0": {"height": 32, "width": 32, "classes": 3},
    "mlp": {"features": 6, "hidden": 4, "classes": 3},
    "res-unet": {"height": 32, "width": 32, "classes": 2, "features": 4},
    "resnet18": {"height": 32, "width": 32, "classes": 3},
    "simple-cnn": {"classes": 3},
    "vit-lite": {"classes": 3, "layers": 1},
}


def head_file(classes: int, dtype: Any = np.float32) -> tuple[bytes, np.ndarray[Any, Any]]:
    head = np.random.default_rng(classes).normal(size=(FEATURES, classes)).astype(dtype)
    return encode_head(head, RidgeConfig(FEATURES, classes, (0,) * FEATURES, 8, 1.0)), head


@pytest.mark.parametrize("classes", [["b", "a"], ["10", "9", "é"]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_ridge_head_predicts_the_same_everywhere(classes: list[str], dtype: Any) -> None:
    data, head = head_file(len(classes), dtype)
    rows = np.random.default_rng(1).normal(size=(500, FEATURES)).astype(np.float32)
    scores = rows.astype(np.float64) @ head.astype(np.float64)
    expected = [classes[best] for best in scores.argmax(axis=1)]
    family = base.configured({"data": "rows"})
    assert family.formats == ("onnx", "skops", "torch")
    session = onnxruntime.InferenceSession(family.export(data, "onnx", classes, {}))
    label, found = session.run(None, {"features": rows})
    assert label.tolist() == expected
    np.testing.assert_allclose(found, scores, rtol=1e-12)
    import skops.io  # takes a second: imported only by this test

    skops_file = family.export(data, "skops", classes, {})
    assert not skops.io.get_untrusted_types(data=skops_file)
    assert skops.io.loads(skops_file).predict(rows).tolist() == expected
    program = torch.export.load(io.BytesIO(family.export(data, "torch", classes, {})))
    found = program.module()(torch.from_numpy(rows)).detach().numpy()
    assert [classes[best] for best in found.argmax(axis=1)] == expected
    assert family.export(data, "onnx", classes, {}) == family.export(data, "onnx", classes, {})


@pytest.mark.parametrize(
    "name",
    [
        # torch takes a second to export a layer.
        name if name == "logistic" else pytest.param(name, marks=pytest.mark.full)
        for name in known()
    ],
)
def test_a_network_gives_the_same_logits_everywhere(name: str) -> None:
    shape = SHAPES[name]
    built = network(name, shape)
    module = built.build(3)
    weights = {key: value.detach() for key, value in module.state_dict().items()}
    data = encode_weights(name, shape, weights)
    inputs = torch.randn(5, *built.input_shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = with_weights(built, weights, "cpu").eval()(inputs).numpy()
    family = base.configured({"family": "network"})
    assert family.formats == tuple(network_export.FORMATS)
    session = onnxruntime.InferenceSession(family.export(data, "onnx", [], {}))
    (found,) = session.run(None, {"inputs": inputs.numpy()})
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
    program = torch.export.load(io.BytesIO(family.export(data, "torch", [], {})))
    np.testing.assert_array_equal(program.module()(inputs).detach().numpy(), expected)


def test_formats_are_those_of_the_family() -> None:
    assert base.configured(small.manifest()).formats == tuple(ridge_export.FORMATS)
    assert base.configured(small_network.manifest()).formats == tuple(network_export.FORMATS)


def test_a_file_of_another_kind_is_refused() -> None:
    data, _ = head_file(3)
    with pytest.raises(ArtifactError):
        base.configured({"family": "network"}).export(data, "onnx", [], {})
    with pytest.raises(ArtifactError):
        base.configured({"data": "rows"}).export(data[:-1], "onnx", ["a", "b", "c"], {})


@pytest.mark.parametrize(
    "maker", [ExactRidgeRegressor, ExactRidgeClassifier, ExactGaussianNB, ExactMultinomialNB]
)
@pytest.mark.parametrize("classes", [2, 3])
def test_models_of_sums_predict_the_same_everywhere(maker: Any, classes: int) -> None:
    rng = np.random.default_rng(3)
    features, rows = np.abs(rng.normal(size=(60, 5))), np.abs(rng.normal(size=(300, 5)))
    numbers = maker is ExactRidgeRegressor
    names = np.array(["b", "a", "é"])[:classes]  # not sorted
    labels: Any = rng.normal(size=60) if numbers else names[rng.integers(0, classes, 60)]
    fitted = maker().fit(features, labels)
    family = base.configured({"family": "sums"})
    assert family.formats == ("onnx", "skops")
    session = onnxruntime.InferenceSession(family.export(fitted.model_bytes(), "onnx", [], {}))
    found = session.run(None, {"features": rows})
    import skops.io

    skops_file = family.export(fitted.model_bytes(), "skops", [], {})
    assert not skops.io.get_untrusted_types(data=skops_file)
    other = skops.io.loads(skops_file).predict(rows)
    if numbers:
        np.testing.assert_allclose(found[0], fitted.predict(rows), rtol=1e-12)
        np.testing.assert_allclose(other, fitted.predict(rows), rtol=1e-12)
    else:
        assert found[0].tolist() == fitted.predict(rows).tolist() == other.tolist()


def test_a_class_without_rows_is_exported_and_never_predicted() -> None:
    fitted = ExactGaussianNB(classes=["a", "b", "c"]).fit([[1.0], [2.0]], ["a", "b"])
    family = base.configured({"family": "sums"})
    session = onnxruntime.InferenceSession(family.export(fitted.model_bytes(), "onnx", [], {}))
    label, _ = session.run(None, {"features": np.array([[0.5], [2.5]])})
    assert label.tolist() == ["a", "b"]
    with pytest.raises(ArtifactError):
        family.export(fitted.model_bytes()[:-1], "onnx", [], {})
