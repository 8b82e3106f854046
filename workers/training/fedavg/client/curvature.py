"""Gradients and curvature products over a client's rows, for second-order methods.

All are means over the client's rows of the loss alone: the method adds weight decay, damping
and client weights. Σ n_i r_i / n over clients (`server.weighted_mean`) is then the mean over
all rows. A product over a share of the rows estimates that mean, unbiased over seeds
(subsampled Newton: Byrd et al., SIAM J. Optim. 21, 2011).
"""

import time
from functools import lru_cache
from math import ceil

import torch
from torch import nn

from workers.errors import RefusedError
from workers.training.fedavg.base import (
    ClientData,
    ClientUpdate,
    Operation,
    RoundTask,
    check_data,
)
from workers.training.fedavg.client.flops import CountedOperations, one_row, without_values
from workers.training.fedavg.config import Loss
from workers.training.fedavg.evaluate import loss_of
from workers.training.fedavg.seeds import stream
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, with_weights

Rows = tuple[torch.Tensor, torch.Tensor]
Vector = dict[str, torch.Tensor]


def curvature(
    task: RoundTask, data: ClientData, device: torch.device | str = "cpu"
) -> ClientUpdate:
    """Return ∇ℓ, ∇²ℓ v or the Gauss-Newton product (Jᵀ ∇²_z ℓ J) v, mean over the rows.

    The answer is the update's `delta`; steps counts batches of config.batch_size. float32,
    summed over batches in float64 on the device, in the order of the rows. A product of a
    share takes `some_rows` of them; `samples` is still the client's number of rows, its
    weight. Raises RefusedError for data that does not fit, and for the Gauss-Newton product
    of a loss that is not convex in the logits.
    """
    started = time.perf_counter()
    if task.operation == "gauss-newton" and task.config.loss != "cross-entropy":
        raise RefusedError(
            "gauss-newton: only for cross-entropy, which is convex in the logits"
        )
    module = with_weights(task.network, task.weights, device)
    check_data(task.network, data)
    taken = data if task.share == 1 else data.only(some_rows(len(data), task.share, task.seed))
    vector = None
    if task.vector is not None:
        vector = {name: part.to(device) for name, part in task.vector.items()}
    sums: Vector = {}
    total, steps, size = 0.0, 0, task.config.batch_size
    for start in range(0, len(taken), size):
        part = slice(start, start + size)
        rows = taken.inputs[part].to(device), taken.targets[part].to(device)
        share = len(rows[0]) / len(taken)
        loss, found = product(task.operation, module, task.config.loss, rows, vector)
        for name, values in found.items():
            scaled = share * values.double()
            sums[name] = sums[name] + scaled if name in sums else scaled
        total += share * loss
        steps += 1
    return ClientUpdate(
        round=task.round,
        client=task.client,
        base=task.base,
        delta={name: sums[name].float().cpu() for name in sorted(sums)},
        samples=len(data),
        steps=steps,
        loss=total,
        flops=len(taken) * operation_flops(task.network, task.config.loss, task.operation),
        seconds=time.perf_counter() - started,
    )


def some_rows(rows: int, share: float, seed: int) -> torch.Tensor:
    """Return the positions (m,) int64, sorted, of m = ⌈share · rows⌉ rows, drawn by the seed.

    The same for equal arguments: the products of one seed are those of one matrix.
    """
    drawn = stream(seed, "curvature-rows").choice(rows, ceil(share * rows), replace=False)
    return torch.from_numpy(drawn).sort().values


def product(
    operation: Operation, module: nn.Module, kind: Loss, rows: Rows, vector: Weights | None
) -> tuple[float, Vector]:
    """Return the mean loss of rows and the mean of the operation over them, by name."""
    weights = dict(module.named_parameters())
    if operation == "gauss-newton":
        assert vector is not None
        return _gauss_newton(module, weights, kind, rows, vector)
    loss = loss_of(kind, module(rows[0]), rows[1])
    found = torch.autograd.grad(loss, list(weights.values()), create_graph=vector is not None)
    if vector is not None:
        terms = [(part * vector[name]).sum() for name, part in zip(weights, found, strict=True)]
        along = torch.stack(terms).sum()
        # A weight that enters linearly everywhere has no second derivative: zero, not None.
        found = torch.autograd.grad(
            along, list(weights.values()), allow_unused=True, materialize_grads=True
        )
    pairs = zip(weights, found, strict=True)
    return _number(loss), {name: part.detach() for name, part in pairs}


def _gauss_newton(
    module: nn.Module, weights: dict[str, nn.Parameter], kind: Loss, rows: Rows, vector: Weights
) -> tuple[float, Vector]:
    """Schraudolph 2002: J v, then the loss's Hessian in the logits, then Jᵀ.

    J v is the derivative of vᵀ(Jᵀ u) by u: two reverse passes, which every layer supports, in
    place of a forward one.
    """
    logits = module(rows[0])
    free, dummy = list(weights.values()), torch.zeros_like(logits, requires_grad=True)
    back = torch.autograd.grad(logits, free, dummy, create_graph=True)
    terms = [(part * vector[name]).sum() for name, part in zip(weights, back, strict=True)]
    (forward,) = torch.autograd.grad(torch.stack(terms).sum(), dummy, retain_graph=True)
    at = logits.detach().requires_grad_()
    loss = loss_of(kind, at, rows[1])
    (slope,) = torch.autograd.grad(loss, at, create_graph=True)
    (curved,) = torch.autograd.grad((slope * forward).sum(), at)
    found = torch.autograd.grad(logits, free, curved)
    return _number(loss), dict(zip(weights, found, strict=True))


def _number(loss: torch.Tensor) -> float:
    return 0.0 if loss.is_meta else float(loss.detach())


@lru_cache(maxsize=64)
def operation_flops(network: Network, kind: Loss, operation: Operation) -> int:
    """Return the operations of one row, counted as in flops.py."""
    module = without_values(network)
    rows = one_row(network, module)
    vector = None
    if operation != "gradient":
        vector = {name: torch.empty_like(weight) for name, weight in module.named_parameters()}
    counted = CountedOperations()
    with counted:
        product(operation, module, kind, rows, vector)
    return counted.total
