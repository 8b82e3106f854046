"""The client side of every engine: from a task and the client's rows to an answer."""

import time

import torch

from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask, check_data
from workers.training.fedavg.client.curvature import curvature, some_rows
from workers.training.fedavg.client.flops import forward_flops
from workers.training.fedavg.client.local import train_locally
from workers.training.fedavg.evaluate import loss_of
from workers.training.networks.weights import with_weights


def respond(
    task: RoundTask, data: ClientData, device: torch.device | str = "cpu"
) -> ClientUpdate:
    """Return the answer to a task. Call it inside `deterministic()`.

    Raises RefusedError for data that does not fit the network, RuntimeError if the device
    fails; an engine reports either as a fault of this client.
    """
    if task.operation == "train":
        return train_locally(task, data, device)
    if task.operation == "evaluate":
        return evaluate_locally(task, data, device)
    return curvature(task, data, device)


def evaluate_locally(
    task: RoundTask, data: ClientData, device: torch.device | str = "cpu"
) -> ClientUpdate:
    """Return the mean of the configured loss over the rows, and how many of them are right.

    With a share, over that share of the rows, drawn by the seed; samples is still the
    client's number of rows, its weight.

    In batches of config.batch_size, each counted by its rows, in float32: the loss equals,
    bit for bit, that of the operation "gradient", at a third of its work. No tensor is
    returned. Raises RefusedError for weights or data that do not fit the network.
    """
    started = time.perf_counter()
    taken = data if task.share == 1 else data.only(some_rows(len(data), task.share, task.seed))
    module = with_weights(task.network, task.weights, device).eval()
    check_data(task.network, data)
    total, correct, size = 0.0, 0, task.config.batch_size
    with torch.no_grad():
        for start in range(0, len(taken), size):
            inputs = taken.inputs[start : start + size].to(device)
            targets = taken.targets[start : start + size].to(device)
            logits = module(inputs)
            share = len(inputs) / len(taken)
            total += share * float(loss_of(task.config.loss, logits, targets))
            correct += int((logits.argmax(1) == targets).sum())
    return ClientUpdate(
        round=task.round,
        client=task.client,
        base=task.base,
        delta={},
        samples=len(data),
        steps=0,
        loss=total,
        flops=len(taken) * forward_flops(task.network),
        seconds=time.perf_counter() - started,
        correct=correct,
    )
