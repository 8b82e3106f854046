"""Whether a client's answer may count: the server's only defence against a broken client."""

from math import isfinite

import torch

from workers.fedavg.base import ClientUpdate, Fault, RoundTask
from workers.networks.weights import norm


def screen(
    task: RoundTask, update: ClientUpdate, *, samples: int | None = None, max_norm: float = 0.0
) -> Fault | None:
    """Return why an answer to a task does not count, None if it does.

    samples is the number of rows the client registered: a client that claims more would
    weigh more. max_norm bounds the Euclidean norm of the whole update, 0 not.
    """
    client = task.client
    if (update.round, update.client, update.base) != (task.round, client, task.base):
        return Fault(client, "mismatch", "another round, client or model than asked")
    if update.samples < 1 or samples not in (None, update.samples):
        return Fault(client, "mismatch", "another number of rows than registered")
    if update.steps < 1 or update.flops < 0:
        return Fault(client, "mismatch", "no step was taken")
    shapes = task.network.tensors()
    if update.delta.keys() != shapes.keys():
        return Fault(client, "shape", "other tensors than the network has")
    for name, part in update.delta.items():
        if part.dtype != torch.float32 or tuple(part.shape) != shapes[name]:
            return Fault(client, "shape", name)
    if not isfinite(update.loss):
        return Fault(client, "not-finite", "loss")
    for name, part in update.delta.items():
        if not bool(torch.isfinite(part).all()):
            return Fault(client, "not-finite", name)
    length = norm(update.delta)
    if max_norm and length > max_norm:
        return Fault(client, "norm", f"{length:.3g} is longer than {max_norm:.3g}")
    return None
