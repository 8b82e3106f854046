"""Sizes against the papers and by hand, shapes of logits, and weights from the seed alone."""

import hashlib

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from workers.errors import RefusedError
from workers.training.networks import (
    registry,
    simple_cnn,
)
from workers.training.networks.base import transformer
from workers.training.networks.registry import network
from workers.training.networks.weights import count, initial_weights, to_vector, weights_of

torch.set_num_threads(1)


def conv(inputs: int, outputs: int, kernel: int, bias: bool = True) -> int:
    return inputs * outputs * kernel * kernel + (outputs if bias else 0)


def unet_block(inputs: int, outputs: int) -> int:
    convolutions = conv(inputs, outputs, 3, False) + conv(outputs, outputs, 3, False)
    return convolutions + conv(inputs, outputs, 1, False) + 4 * outputs


RES_UNET = (
    sum(unet_block(i, o) for i, o in [(3, 32), (32, 64), (64, 128), (128, 256), (256, 512)])
    + sum(conv(2 * c, c, 1) + unet_block(2 * c, c) for c in (256, 128, 64, 32))
    + conv(32, 2, 1)
)

SIZES = [
    ("HF-KCU: SimpleCNN", "simple-cnn", {}, 188_810),
    ("does not depend on the sides", "simple-cnn", {"height": 8, "width": 9}, 188_810),
    ("CIFAR: two more channels", "simple-cnn", {"channels": 3, "height": 32, "width": 32}, 188_810 + 2 * 25 * 32),
    ("torchvision resnet18, 1000 classes", "resnet18", {"stem": 7, "classes": 1000}, 11_689_512),
    ("PUF: 4.49e7 bytes", "resnet18", {"stem": 7, "classes": 100}, 11_227_812),
    ("3 x 3 stem", "resnet18", {"classes": 100}, 11_227_812 - 64 * 3 * (49 - 9)),
    ("ViT-Lite-7/4, 3.72 M", "vit-lite", {}, 3_716_874),
    ("ViT-Lite-6/4, 3.19 M", "vit-lite", {"layers": 6}, 3_190_538),
    ("SegFormer-B0 encoder + linear head", "mit-b0", {"classes": 100}, 3_319_392 + 25_700),
    ("SegFormer-B0 for ADE20K, 150 classes", "mit-b0", {"segment": 1, "classes": 150}, 3_752_694),
    ("PUF: approximately 7.6M", "res-unet", {}, RES_UNET),
    ("logistic", "logistic", {"features": 784}, 7_850),
    ("64 · 32 + 32 + 32 · 10 + 10", "mlp", {}, 2_410),
]  # fmt: skip


@pytest.mark.parametrize(("what", "name", "shape", "size"), SIZES, ids=[s[0] for s in SIZES])
def test_parameters_are_counted(what: str, name: str, shape: dict[str, int], size: int) -> None:
    assert count(network(name, shape)) == size


def test_the_papers_bytes() -> None:
    assert f"{4 * 11_227_812:.2e}" == "4.49e+07"  # PUF, Table III, ResNet-18
    assert f"{4 * 3_319_392:.2e}" == "1.33e+07"  # and MiT-B0: the encoder alone
    assert round(RES_UNET / 1e6, 1) == 7.6


SMALL = [
    ("logistic", {"features": 6, "classes": 3}, (3,)),
    ("mlp", {"features": 6, "hidden": 4, "classes": 3}, (3,)),
    ("simple-cnn", {"height": 28, "width": 28}, (10,)),
    ("simple-cnn", {"height": 6, "width": 7, "channels": 2}, (10,)),
    ("simple-cnn", {"height": 17, "width": 16}, (10,)),
    ("resnet18", {"height": 9, "width": 12, "channels": 1, "classes": 4}, (4,)),
    ("resnet18", {"height": 32, "width": 32, "stem": 7, "pool": 0}, (10,)),
    ("vit-lite", {"height": 8, "width": 12, "layers": 2, "embedding": 16}, (10,)),
    ("mit-b0", {"height": 65, "width": 72, "classes": 5}, (5,)),
    ("mit-b0", {"height": 64, "width": 74, "classes": 3, "segment": 1}, (3, 64, 74)),
    ("res-unet", {"height": 19, "width": 33, "features": 4, "classes": 3}, (3, 19, 33)),
]


@pytest.mark.parametrize(("name", "shape", "logits"), SMALL)
def test_forward_and_backward(
    name: str, shape: dict[str, int], logits: tuple[int, ...]
) -> None:
    named = network(name, shape)
    module = named.build(1)
    inputs = torch.linspace(-1, 1, 2 * int(np.prod(named.input_shape)))
    inputs = inputs.view(2, *named.input_shape)
    out = module(inputs)
    assert out.shape == (2, *logits)
    assert out.dtype == torch.float32
    assert named.task == ("segmentation" if len(logits) == 3 else "classification")
    # Nothing differs between training and evaluation, and rows do not see each other.
    assert torch.equal(module.eval()(inputs), out)
    torch.testing.assert_close(module(inputs[1:]), out[1:], rtol=1e-4, atol=1e-4)
    out.square().mean().backward()
    dead = [n for n, w in module.named_parameters() if w.grad is None or not w.grad.any()]
    assert not dead


@pytest.mark.parametrize("name", ["simple-cnn", "vit-lite", "mit-b0"])
def test_there_is_a_second_derivative(name: str) -> None:
    named = network(name, {"height": 32, "width": 32})
    module = named.build(2)
    weights = list(module.parameters())
    inputs = torch.linspace(-1, 1, int(np.prod(named.input_shape))).view(1, *named.input_shape)
    loss = functional.cross_entropy(module(inputs), torch.tensor([3]))
    first = torch.autograd.grad(loss, weights, create_graph=True)
    along = torch.stack([(part * part.detach()).sum() for part in first]).sum()
    product = torch.autograd.grad(along, weights)
    assert all(bool(torch.isfinite(part).all()) for part in product)
    assert any(bool(part.any()) for part in product)


def test_flops_of_a_residual_network_in_the_papers_unit() -> None:
    """PUF, Table VII: 0.15 G for ResNet-18; only a pooled 3 x 3 or a bare 7 x 7 stem fits."""
    found = {}
    for stem in (3, 7):
        for pool in (0, 1):
            module = network("resnet18", {"stem": stem, "pool": pool}).skeleton()
            with FlopCounterMode(display=False) as counter:
                module(torch.empty(1, 3, 32, 32, device="meta"))
            found[stem, pool] = counter.get_total_flops() / 2e9
    assert {key for key, giga in found.items() if 0.1 < giga < 0.2} == {(3, 1), (7, 0)}


def test_initial_weights_are_these() -> None:
    """A retrained model starts from the initial weights of the original one, years later."""
    vector = to_vector(weights_of(simple_cnn.ARCHITECTURE.build(0)))
    digest = hashlib.sha256(vector.numpy().tobytes()).hexdigest()
    assert digest == "e99e72064da2efd5c847c78da8c5a397278585f96a981d8084e61be51c19d77d"


@pytest.mark.parametrize("name", registry.known())
def test_the_seed_alone_decides(name: str) -> None:
    shape = {} if name in ("logistic", "mlp") else {"height": 16, "width": 16}
    if name == "res-unet":
        shape["features"] = 4
    named = network(name, shape)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = to_vector(initial_weights(named, 7))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(to_vector(initial_weights(named, 7)), first)
    assert not torch.equal(to_vector(initial_weights(named, 8)), first)
    assert bool(torch.isfinite(first).all())


@pytest.mark.parametrize("name", registry.known())
def test_initial_answers_are_moderate(name: str) -> None:
    """First logits in the tens are a loss in the tens, whose gradients end all learning."""
    named = network(name, {} if name in ("logistic", "mlp") else {"height": 32, "width": 32})
    module = named.build(0)
    shape = (8, *named.input_shape)
    inputs = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, shape)).float()
    with torch.no_grad():
        logits = module(inputs)
    assert 0.001 < float(logits.std()) < 2.5


def test_parameters_do_not_share_a_stream() -> None:
    """Adding a layer leaves the others as they were."""
    small = initial_weights(network("vit-lite", {"layers": 2}), 3)
    large = initial_weights(network("vit-lite", {"layers": 3}), 3)
    assert all(torch.equal(large[name], weight) for name, weight in small.items())
    assert not torch.equal(small["layers.0.expand.weight"], small["layers.1.expand.weight"])


def test_moments_of_the_draws() -> None:
    cnn = initial_weights(network("simple-cnn"), 0)
    assert float(cnn["hidden.weight"].abs().max()) <= 1 / 16
    assert float(cnn["hidden.weight"].std()) == pytest.approx(1 / 16 / 3**0.5, rel=0.01)
    resnet = initial_weights(network("resnet18"), 0)
    name = "blocks.7.second.weight"
    assert float(resnet[name].std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert resnet["blocks.7.second_norm.weight"].tolist() == [1.0] * 512
    linear = torch.nn.Linear(300, 300)
    values = transformer(np.random.default_rng(0), linear, "weight", (300, 300))
    assert np.abs(values).max() <= np.float32(0.04)
    # A normal cut at two deviations has 0.8796 of the deviation.
    assert values.std() == pytest.approx(0.02 * 0.8796, rel=0.01)


BAD = [
    ("simple-cnn", {"chanels": 1}, "parameters"),
    ("simple-cnn", {"channels": 0}, "channels must be at least 1"),
    ("simple-cnn", {"height": 5}, "6 x 6"),
    ("simple-cnn", {"classes": True}, "integer"),
    ("simple-cnn", {"classes": 1.0}, "integer"),
    ("simple-cnn", {"classes": -1}, "integer"),
    ("simple-cnn", {"classes": 2**40}, "integer"),
    ("simple-cnn", {"classes": 2**20}, "2\\^28"),
    ("resnet18", {"stem": 5}, "stem"),
    ("resnet18", {"pool": 2}, "pool"),
    ("vit-lite", {"height": 30}, "multiple of 4"),
    ("vit-lite", {"patch": 0}, "patch"),
    ("vit-lite", {"embedding": 30}, "multiple of 4"),
    ("mit-b0", {"segment": 2}, "segment"),
    ("res-unet", {"height": 15}, "height"),
    ("res-unet", {"features": 3}, "multiple of 2"),
    ("logistic", {"features": 0}, "features"),
    ("alexnet", {}, "choose one of logistic"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "message"), BAD)
def test_odd_shapes_are_named(name: str, shape: dict[str, int], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        network(name, shape)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True, None])
def test_odd_seeds_are_refused(seed: object) -> None:
    with pytest.raises(RefusedError, match="seed"):
        simple_cnn.ARCHITECTURE.build(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("segment", [0, 1])
def test_a_mix_transformer_takes_images_smaller_than_its_reductions(segment: int) -> None:
    named = network("mit-b0", {"height": 10, "width": 7, "segment": segment})
    assert torch.isfinite(named.build(0)(torch.ones(1, 3, 10, 7))).all()
