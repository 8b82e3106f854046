"""A small timm architecture with random weights made here; timm itself is the oracle."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from workers.data.extractors import registry
from workers.data.extractors.base import ExtractorError
from workers.errors import MissingLibraryError

needed = pytest.mark.skipif(find_spec("timm") is None, reason="lethe[vision] is not installed")
NAME = "test_vit"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import timm

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("timm") / "model.safetensors"
    save_file(timm.create_model(NAME, num_classes=0).state_dict(), path)
    return path


def images(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, 40, 60, 3), dtype=np.uint8)


def load(path: Path, name: str = NAME, **named: Any) -> Any:
    return registry.open_extractor("timm", {"model": name}, path=path, **named)


@needed
def test_features_are_timms(weights: Path) -> None:
    import timm
    from PIL import Image

    extractor = load(weights)
    assert extractor.kind == "images"
    got = extractor.extract(images(11))
    model = timm.create_model(NAME, num_classes=0)
    model.load_state_dict(load_file(weights))
    config = timm.data.resolve_model_data_config(model)
    prepare = timm.data.create_transform(**config, is_training=False)
    with torch.no_grad():
        batch = torch.stack([prepare(Image.fromarray(image)) for image in images(11)])
        want = model.eval()(batch).numpy()
    assert got.dtype == np.float32
    assert np.allclose(got, want, atol=1e-5)
    assert np.ptp(got, axis=0).max() > 0
    assert np.array_equal(got, extractor.extract(images(11)))
    assert np.array_equal(got[:2], extractor.extract(images(11)[:2]))


@needed
def test_the_registry_builds_it_again(weights: Path) -> None:
    extractor = load(weights)
    assert set(extractor.parameters) >= {
        "model",
        "size",
        "mean",
        "std",
        "interpolation",
        "crop",
    }
    again = registry.get("timm", extractor.parameters, path=weights, digest=extractor.digest)
    assert again.digest == extractor.digest
    for name in ("size", "mean", "dimension"):
        other = {**extractor.parameters, name: "1"}
        with pytest.raises(Exception, match="not spelled as"):
            registry.get("timm", other, path=weights)


@needed
def test_weights_and_preprocessing_are_pinned(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import timm

    pinned = load(weights).digest
    data = weights.read_bytes()
    other = tmp_path / "other.safetensors"
    other.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ExtractorError, match="differs from the pinned one"):
        load(other, digest=pinned)
    resolve = timm.data.resolve_model_data_config
    monkeypatch.setattr(
        timm.data,
        "resolve_model_data_config",
        lambda model: {**resolve(model), "crop_pct": 0.5},
    )
    with pytest.raises(ExtractorError, match="differs from the pinned one"):
        load(weights, digest=pinned)


@needed
def test_a_classifier_in_the_file_is_left_out(weights: Path, tmp_path: Path) -> None:
    import timm

    whole = timm.create_model(NAME, num_classes=10)
    whole.load_state_dict(load_file(weights), strict=False)
    path = tmp_path / "classifier.safetensors"
    save_file(whole.state_dict(), path)
    assert np.array_equal(load(path).extract(images(2)), load(weights).extract(images(2)))


@needed
@pytest.mark.parametrize(
    "name",
    ["resnet", "hf-hub:timm/test_vit", "local-dir:/tmp", "../x", "", "test_vit.no_such_tag"],
)
def test_unknown_architectures_are_refused(weights: Path, name: str) -> None:
    with pytest.raises(ExtractorError, match="no model of the name"):
        load(weights, name)


@needed
def test_odd_weights_are_refused(weights: Path, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(ExtractorError, match="missing"):
        load(path)
    path.write_bytes(b"no tensors")
    with pytest.raises(ExtractorError, match="no safetensors"):
        load(path)
    with pytest.raises(ExtractorError, match="not those of this model"):
        load(weights, "test_vit2")
    broken = {
        key: torch.full_like(value, torch.nan) for key, value in load_file(weights).items()
    }
    save_file(broken, path)
    with pytest.raises(ExtractorError, match="NaN"):
        load(path).extract(images(1))


@needed
@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((2, 4)),
        np.zeros((2, 8, 8, 3)),
        np.zeros((2, 3, 8, 8), np.uint8),
        np.array(["a"]),
    ],
)
def test_only_rgb_images_are_images(weights: Path, bad: np.ndarray) -> None:
    with pytest.raises(ExtractorError, match="uint8 of shape"):
        load(weights).extract(bad)


def test_the_architecture_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="'model' is missing"):
        registry.open_extractor("timm", {}, path=tmp_path)


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("workers.libraries.import_module", broken)
    with pytest.raises(
        MissingLibraryError, match=r"RuntimeError.*in a clone of Lethe: .*\[vision\]"
    ):
        load(tmp_path)
