"""Architectures: from integer shapes and a seed to a float32 network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from workers.errors import RefusedError
from workers.training.networks.initial import Draw, initialise

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
            raise RefusedError(f"{self.id}: these parameters make no network") from None
        if sum(weight.numel() for weight in network.parameters()) > LARGEST_NETWORK:
            raise RefusedError(f"{self.id}: a network has at most 2^28 weights")
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
