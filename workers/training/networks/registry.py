"""Architectures by name, and networks by the pair (name, shape) that a model pins."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from torch import nn

from workers.errors import RefusedError
from workers.training.networks import (
    logistic,
    mit_b0,
    mlp,
    res_unet,
    resnet18,
    simple_cnn,
    vit_lite,
)
from workers.training.networks.base import Architecture, Task

_ARCHITECTURES: dict[str, Architecture] = {
    module.ARCHITECTURE.id: module.ARCHITECTURE
    for module in (logistic, mit_b0, mlp, res_unet, resnet18, simple_cnn, vit_lite)
}


def known() -> tuple[str, ...]:
    """Return the names of all architectures, sorted."""
    return tuple(sorted(_ARCHITECTURES))


def get(network_id: str) -> Architecture:
    """Return an architecture. Raises RefusedError naming the known ones."""
    try:
        return _ARCHITECTURES[network_id]
    except (KeyError, TypeError):
        raise RefusedError(f"unknown network: choose one of {', '.join(known())}") from None


@dataclass(frozen=True, slots=True)
class Network:
    """One network: its architecture and all of its shape parameters, sorted by name.

    Create it with `network`, which completes the shape, so that equal networks compare equal.
    """

    id: str
    shape: tuple[tuple[str, int], ...]

    @property
    def parameters(self) -> dict[str, int]:
        """The shape parameters by name."""
        return dict(self.shape)

    @property
    def classes(self) -> int:
        """The number of logits for each input, or for each pixel."""
        return self.parameters["classes"]

    @property
    def task(self) -> Task:
        """What its logits classify: inputs or pixels."""
        return get(self.id).task(self.parameters)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return get(self.id).input_shape(self.parameters)

    def skeleton(self) -> nn.Module:
        """Return the network on the meta device."""
        return get(self.id).skeleton(self.parameters)

    def build(self, seed: int) -> nn.Module:
        """Return the network with its initial weights."""
        return get(self.id).build(seed, **self.parameters)

    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each of its float32 weights by name, sorted."""
        return _tensors(self)


def network(network_id: str, shape: Mapping[str, int] | None = None) -> Network:
    """Return the network of a name and shape, with defaults for the rest.

    Raises RefusedError for an unknown name or invalid parameters.
    """
    named = Network(network_id, tuple(get(network_id).complete(shape or {}).items()))
    named.tensors()
    return named


@lru_cache(maxsize=64)
def _tensors(named: Network) -> dict[str, tuple[int, ...]]:
    found = named.skeleton().named_parameters()
    return {name: tuple(weight.shape) for name, weight in sorted(found)}
