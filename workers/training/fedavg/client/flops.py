"""Floating-point operations, counted from the operators of a network on the meta device.

A multiply-add counts as two. Convolutions, matrix products and attention are counted,
elementwise work is not: about 1 % for the networks here.
"""

from functools import lru_cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from workers.training.fedavg.client.losses import loss_of
from workers.training.fedavg.config import Loss
from workers.training.networks.registry import Network


@lru_cache(maxsize=64)
def forward_flops(network: Network) -> int:
    """Return the operations of one input through the network."""
    with FlopCounterMode(display=False) as counter:
        network.skeleton()(_input(network))
    return int(counter.get_total_flops())


@lru_cache(maxsize=64)
def training_flops(network: Network, loss: Loss = "cross-entropy") -> int:
    """Return the operations of the gradient of one input: forward and backward."""
    pixels = network.input_shape[1:] if network.task == "segmentation" else ()
    targets = torch.zeros((1, *pixels), dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        loss_of(loss, network.skeleton()(_input(network)), targets).backward()  # type: ignore[no-untyped-call]
    return int(counter.get_total_flops())


def _input(network: Network) -> torch.Tensor:
    return torch.empty((1, *network.input_shape), device="meta")
