"""A certificate's notes on a run's cost, and the counted operations."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from workers.training.fedavg.base import Work, cost_notes
from workers.training.fedavg.client.flops import (
    CountedOperations,
    forward_flops,
    training_flops,
)
from workers.training.networks import registry
from workers.training.networks.registry import network


def test_the_notes_of_a_certificate_say_what_a_run_took() -> None:
    assert cost_notes(Work(1, 20, 10**18 + 1, 300, 4000, 5.06)) == {
        "cost.rounds": "1",
        "cost.steps": "20",
        "cost.flops": "1000000000000000001",
        "cost.bytes-down": "300",
        "cost.bytes-up": "4000",
        "cost.seconds": "5.1",
    }


def test_counted_operations_of_a_convolutional_network() -> None:
    """28 x 28, 5 x 5 unpadded: 24 x 24 positions, then 8 x 8; two operations each."""
    named = network("simple-cnn")
    first, second = 24 * 24 * 25 * 1 * 32, 8 * 8 * 25 * 32 * 64
    hidden, head = 256 * 512, 512 * 10
    assert forward_flops(named) == 2 * (first + second + hidden + head)
    # Backward: both operands' gradients, but nobody asks for the image's.
    assert training_flops(named) == 2 * (2 * first + 3 * (second + hidden + head))


def test_counted_operations_of_segmentation() -> None:
    named = network("res-unet", {"height": 16, "width": 16, "features": 4})
    assert forward_flops(named) < training_flops(named, "cross-entropy+dice")
    assert training_flops(named, "cross-entropy+dice") < 3 * forward_flops(named)


@pytest.mark.parametrize("name", registry.known())
def test_operations_are_counted_as_torch_counts_them(name: str) -> None:
    named = network(name)
    module = named.skeleton()
    inputs = torch.empty((2, *named.input_shape), device="meta")

    def twice() -> None:
        weights = list(module.parameters())
        loss = module(inputs).square().sum()
        first = torch.autograd.grad(loss, weights, create_graph=True)
        torch.autograd.grad(torch.stack([one.sum() for one in first]).sum(), weights)

    with CountedOperations() as counted:
        twice()
    with FlopCounterMode(display=False) as theirs:
        twice()
    assert counted.total == theirs.get_total_flops() > 0
