"""The first and last layers of every network, read off their definitions."""

import pytest

from workers.errors import RefusedError
from workers.methods.network.baselines import layers as module
from workers.methods.network.baselines.layers import classifier, first_kernel, layers
from workers.training.networks.registry import known, network

FIRST = {
    "logistic": "head.weight",
    "mit-b0": "encoder.patches.0.conv.weight",
    "mlp": "hidden.weight",
    "res-unet": "down.0.first.weight",
    "resnet18": "stem.weight",
    "simple-cnn": "features.0.weight",
    "vit-lite": "patches.weight",
}


@pytest.mark.parametrize("name", known())
def test_first_and_last(name: str) -> None:
    net = network(name)
    assert first_kernel(net) == FIRST[name]
    last = "pixels" if name == "res-unet" else "head"
    assert classifier(net) == (f"{last}.bias", f"{last}.weight")
    assert set(classifier(net)) <= net.tensors().keys()


def test_a_network_without_a_last_layer_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("simple-cnn")
    assert layers(net)[-2:] == ("hidden", "head")
    monkeypatch.setattr(module, "layers", lambda _: ("features.0", "hidden"))
    with pytest.raises(RefusedError, match="another baseline"):
        classifier(net)
