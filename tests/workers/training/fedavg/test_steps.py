"""Steps have the bits of torch's own optimisers, and load no compiler."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workers.training.fedavg.client.local import Steps

ROOT = Path(__file__).parents[4]
SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
# In a process where importing the compiler is an error: a training, and what a product costs.
# The training imports no symbolic shapes either; a gradient of a given gradient has torch do so.
WITHOUT_COMPILER = """
import sys
sys.modules["torch._dynamo"] = sys.modules["sympy"] = None
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.training.fedavg.client.curvature import operation_flops
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import train
train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS))
del sys.modules["sympy"]
operation_flops(NETWORK, "cross-entropy", "gauss-newton")
"""


def network() -> nn.Sequential:
    """Return a small network; its second layer is frozen."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3))
    module[2].requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (lambda w: SGD(w, 0.1), {}),
        (lambda w: SGD(w, 0.1, momentum=0.9), {"momentum": 0.9}),
        (
            lambda w: SGD(w, 0.1, momentum=0.9, weight_decay=0.01),
            {"momentum": 0.9, "decay": 0.01},
        ),
        (lambda w: SGD(w, 0.1, 0.9, maximize=True), {"momentum": 0.9, "maximize": True}),
        (lambda w: ADAM(w, 0.1, weight_decay=0.01), {"kind": "adam", "decay": 0.01}),
        (lambda w: ADAMW(w, 0.1, weight_decay=0.01), {"kind": "adamw", "decay": 0.01}),
    ],
)
def test_steps_have_the_bits_of_torchs_optimisers(
    theirs: Callable[..., torch.optim.Optimizer], ours: dict[str, Any]
) -> None:
    one, other = network(), network()
    optimizer, steps = theirs(one.parameters()), Steps(other.parameters(), 0.1, **ours)
    for turn in range(6):
        if turn == 3:  # a weight may begin late
            one[2].requires_grad_(True)
            other[2].requires_grad_(True)
        inputs = torch.randn(7, 5, generator=torch.Generator().manual_seed(turn))
        for module, forget in (
            (one, optimizer.zero_grad),
            (other, steps.forget_gradients),
        ):
            forget()
            module(inputs).square().mean().backward()
        optimizer.step()
        steps.step()
        for expected, found in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.equal(expected, found), turn


def test_a_training_does_not_import_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
