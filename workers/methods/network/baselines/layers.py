"""The first and the last layer of a network, found by running it without data."""

from functools import lru_cache
from typing import Any

import torch
from torch import nn

from workers.errors import RefusedError
from workers.training.fedavg.client.flops import one_row, without_values
from workers.training.networks.registry import Network

Layer = nn.Conv2d | nn.Linear


@lru_cache(maxsize=64)
def layers(network: Network) -> tuple[str, ...]:
    """Return the paths of convolutions and linear layers in the order in which they run.

    Traced by running it: registration may be in another order.
    """
    module, ran = without_values(network), list[str]()
    for path, part in module.named_modules():
        if isinstance(part, Layer):
            part.register_forward_hook(_noting(path, ran))
    with torch.no_grad():
        module(one_row(network, module)[0])
    return tuple(dict.fromkeys(ran))  # a layer that runs twice counts where it first ran


def first_kernel(network: Network) -> str:
    """Return the name of the weight of the layer that sees the inputs."""
    return f"{layers(network)[0]}.weight"


def classifier(network: Network) -> tuple[str, ...]:
    """Return the names of the parameters of the layer that outputs the logits, sorted.

    Raises RefusedError if no single layer does.
    """
    last = layers(network)[-1]
    shapes = network.tensors()
    if shapes[f"{last}.weight"][0] != network.classes:
        raise RefusedError("the network has no last layer of its own: use another baseline")
    return tuple(name for name in shapes if name.rpartition(".")[0] == last)


def _noting(path: str, ran: list[str]) -> Any:
    def note(*_: object) -> None:
        ran.append(path)

    return note
