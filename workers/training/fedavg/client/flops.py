"""Floating-point operations, counted from the operators that a network calls for one row.

A multiply-add counts as two. Convolutions, matrix products and attention are counted,
elementwise work is not: about 1 % for the networks here.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from workers.training.fedavg.config import Loss
from workers.training.fedavg.evaluate import loss_of
from workers.training.networks.base import in_memory
from workers.training.networks.registry import Network

SMALL = 1 << 20  # weights up to which a network is counted in memory


class CountedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts, in `total`, the operations of what runs within it, as `FlopCounterMode` does.

    That class imports torch's compiler only to be skipped by it, which takes three times as
    long as importing torch. Nothing is compiled here.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call an operator and count it, or its parts if it has some."""
        named = kwargs or {}
        counted = flop_registry.get(func._overloadpacket)
        if counted is None and func.namespace == "aten":  # prim asks for a tensor's device
            with self:
                found = func.decompose(*args, **named)
            if found is not NotImplemented:
                return found
        found = func(*args, **named)
        if counted is not None:
            self.total += int(counted(*args, **named, out_val=found))
        return found


def without_values(network: Network) -> nn.Module:
    """Return a network to count with: on the meta device, or, if small, in memory.

    Operators on the meta device import torch's compiler too. For a large network those 2 s
    are negligible beside the training, and in memory it would take its size again.
    """
    module = network.skeleton()
    small = sum(weight.numel() for weight in module.parameters()) < SMALL
    return in_memory(module, "cpu") if small else module


def one_row(network: Network, module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an input and its target, without values, where the module is."""
    device = next(module.parameters()).device
    pixels = network.input_shape[1:] if network.task == "segmentation" else ()
    inputs = torch.empty((1, *network.input_shape), device=device)
    return inputs, torch.zeros((1, *pixels), dtype=torch.int64, device=device)


@lru_cache(maxsize=64)
def forward_flops(network: Network) -> int:
    """Return the operations of one input through the network."""
    module = without_values(network)
    inputs, _ = one_row(network, module)
    counted = CountedOperations()
    with counted:
        module(inputs)
    return counted.total


@lru_cache(maxsize=64)
def training_flops(network: Network, loss: Loss = "cross-entropy") -> int:
    """Return the operations of the gradient of one input: forward and backward."""
    return gradient_flops(network, without_values(network), loss)


def gradient_flops(network: Network, module: nn.Module, loss: Loss) -> int:
    """Return the operations of one input forward, and backward to the module's free weights."""
    inputs, targets = one_row(network, module)
    counted = CountedOperations()
    with counted:
        loss_of(loss, module(inputs), targets).backward()  # type: ignore[no-untyped-call]
    return counted.total
