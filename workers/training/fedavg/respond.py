"""The client's end of every engine: a task and the client's own rows in, an answer out."""

import torch

from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask
from workers.training.fedavg.curvature import curvature
from workers.training.fedavg.evaluate_locally import evaluate_locally
from workers.training.fedavg.local import train_locally


def respond(
    task: RoundTask, data: ClientData, device: torch.device | str = "cpu"
) -> ClientUpdate:
    """Return the answer to a task. Call it inside `deterministic()`.

    Raises RefusedError for data that do not fit the network, RuntimeError if the device
    fails; an engine reports either as a fault of this client.
    """
    if task.operation == "train":
        return train_locally(task, data, device)
    if task.operation == "evaluate":
        return evaluate_locally(task, data, device)
    return curvature(task, data, device)
