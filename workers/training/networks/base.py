"""Architectures: from integer shapes and a seed to a float32 network.

Initial weights are a function of the seed and of each parameter's name alone. torch's own
initialisation draws from a global stream and its normal numbers differ in the last bit between
processors with and without AVX2. Here NumPy draws them, each parameter from its own stream: a
retrained model starts from the same weights, whatever the process built before.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from workers.errors import RefusedError

Draw = Callable[[np.random.Generator, nn.Module, str, tuple[int, ...]], NDArray[np.float32]]


def initialise(network: nn.Module, seed: int, draw: Draw) -> nn.Module:
    """Fill the parameters of a network, on the meta device or not, and return it on the CPU.

    `draw` returns the values of one parameter from its module and its name there. Raises
    RefusedError for a seed outside 0..2^63-1.
    """
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise RefusedError("the seed of a network must be an integer from 0 to 2^63 - 1")
    assert not list(network.buffers()), "a buffer is state that FedAvg would not average"
    in_memory(network, "cpu")
    with torch.no_grad():
        for path, module in network.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                digest = hashlib.sha256(f"initial weights\0{seed}\0{path}.{name}".encode())
                stream = np.random.PCG64(int.from_bytes(digest.digest(), "big"))
                values = draw(np.random.Generator(stream), module, name, tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(values))
    return network


def in_memory(network: nn.Module, device: torch.device | str) -> nn.Module:
    """Give a network on the meta device parameters without values on a device, and return it.

    As `Module.to_empty`, which calls an operator on the meta device: each process would import
    torch's symbolic shapes, and SymPy for them, in half a second.
    """
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
            setattr(module, name, nn.Parameter(empty, parameter.requires_grad))
    return network


def uniform(
    rng: np.random.Generator, module: nn.Module, name: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """U(-1/√f, 1/√f), f the fan-in, for weights and biases: the default of torch's layers."""
    if isinstance(module, nn.GroupNorm | nn.LayerNorm):
        return _norm(name, shape)
    assert isinstance(module, nn.Conv2d | nn.Linear)
    bound = 1 / sqrt(prod(module.weight.shape[1:]))
    return rng.uniform(-bound, bound, shape).astype(np.float32)


def he(
    rng: np.random.Generator, module: nn.Module, name: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """N(0, 2/fan-out) for convolutions, as in He et al. 2015; `uniform` for the head."""
    if isinstance(module, nn.Conv2d):
        return _fan_out(rng, module, name, shape)
    return uniform(rng, module, name, shape)


def lecun(
    rng: np.random.Generator, module: nn.Module, name: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """N(0, 1/fan-in) for convolutions, biases 0: output and input have equal variance.

    Source: LeCun et al. 1998, "Efficient BackProp". For a decoder, which narrows: with
    fan-out each step would double its signal, and the first logits would be in the tens.
    """
    if isinstance(module, nn.Conv2d):
        fan_in = module.in_channels * prod(module.kernel_size) // module.groups
        return _normal(rng, fan_in, name, shape)
    return uniform(rng, module, name, shape)


def transformer(
    rng: np.random.Generator, module: nn.Module, name: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """N(0, 0.02²) cut at two deviations for tokens and linear layers, biases 0.

    Convolutions as `he`. Source: Dosovitskiy et al. 2021 and SegFormer's code.
    """
    if isinstance(module, nn.GroupNorm | nn.LayerNorm):
        return _norm(name, shape)
    if isinstance(module, nn.Conv2d):
        return _fan_out(rng, module, name, shape)
    if name == "bias":
        return np.zeros(shape, dtype=np.float32)
    values = rng.standard_normal(shape)
    while (outside := np.abs(values) > 2).any():
        values[outside] = rng.standard_normal(int(outside.sum()))
    return (0.02 * values).astype(np.float32)


def _fan_out(
    rng: np.random.Generator, module: nn.Conv2d, name: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    fan_out = module.out_channels * prod(module.kernel_size) // module.groups
    return _normal(rng, fan_out / 2, name, shape)


def _normal(
    rng: np.random.Generator, precision: float, name: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """N(0, 1/precision) for weights, biases 0."""
    if name == "bias":
        return np.zeros(shape, dtype=np.float32)
    return (sqrt(1 / precision) * rng.standard_normal(shape)).astype(np.float32)


def _norm(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    value = 1.0 if name == "weight" else 0.0
    return np.full(shape, value, dtype=np.float32)


Task = Literal["classification", "segmentation"]

# A file's header names the shape: the limits keep a forged header from exhausting memory.
LARGEST_PARAMETER = 1 << 20
LARGEST_NETWORK = 1 << 28  # parameters, 1 GiB of float32


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family of networks, distinguished by integer shape parameters.

    `make` builds a network on the current device and may raise RefusedError; the network
    takes inputs (n, *input_shape) float32 and returns logits (n, classes), or
    (n, classes, height, width) for segmentation. It has no dropout and no buffers: the
    same weights and inputs give the same logits, training or not.
    """

    id: str
    defaults: Mapping[str, int]
    make: Callable[..., nn.Module]
    draw: Draw
    inputs: Callable[[Mapping[str, int]], tuple[int, ...]]
    task: Callable[[Mapping[str, int]], Task] = lambda _: "classification"

    def complete(self, shape: Mapping[str, int]) -> dict[str, int]:
        """Return all parameters, defaults for those not given, sorted by name.

        Raises RefusedError for an unknown name or a value that is not an integer in range.
        """
        unknown = set(shape) - set(self.defaults)
        if unknown:
            raise RefusedError(f"{self.id} has the parameters {', '.join(self.defaults)} only")
        full = {**self.defaults, **shape}
        for name, value in full.items():
            if type(value) is not int or not 0 <= value <= LARGEST_PARAMETER:
                raise RefusedError(f"{self.id}: {name} must be an integer, 0 to 2^20")
        return dict(sorted(full.items()))

    def skeleton(self, shape: Mapping[str, int]) -> nn.Module:
        """Return the network on the meta device: names and shapes, no memory.

        Raises RefusedError for invalid parameters, or a network beyond 2^28 weights.
        """
        try:
            with torch.device("meta"):
                network = self.make(**self.complete(shape))
        except (RuntimeError, ValueError, ZeroDivisionError, OverflowError):
            raise RefusedError(
                f"{self.id}: no network can be made with these parameters and this "
                "input_shape: choose others"
            ) from None
        if sum(weight.numel() for weight in network.parameters()) > LARGEST_NETWORK:
            raise RefusedError(
                f"{self.id}: a network has at most 2^28 weights: choose smaller parameters"
            )
        return network

    def build(self, seed: int, **shape: int) -> nn.Module:
        """Return the network with its initial weights, a function of the seed and the shape."""
        return initialise(self.skeleton(shape), seed, self.draw)

    def input_shape(self, shape: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of one input: (channels, height, width), or (features,)."""
        return self.inputs(self.complete(shape))


def image(shape: Mapping[str, int]) -> tuple[int, ...]:
    """Return (channels, height, width), the input of every network for images."""
    return shape["channels"], shape["height"], shape["width"]


def positive(**values: int) -> None:
    """Raise RefusedError, naming the value, if one is not at least 1."""
    for name, value in values.items():
        if value < 1:
            raise RefusedError(f"{name} must be at least 1")


def divides(divisor: int, **values: int) -> None:
    """Raise RefusedError, naming the value, unless all are positive multiples of divisor."""
    for name, value in values.items():
        if value < 1 or value % divisor:
            raise RefusedError(f"{name} must be a multiple of {divisor}")
