"""Whether a client's answer may count: the server's only defence against a broken client."""

from math import inf, isfinite, prod, sqrt

import torch

from workers.training.fedavg.base import ClientUpdate, Fault, RoundTask
from workers.training.networks.weights import largest, norm

ENORMOUS = 1e6  # no training moves this far from its start, and no honest client comes near


def screen(
    task: RoundTask, update: ClientUpdate, *, samples: int | None = None, max_norm: float = 0.0
) -> Fault | None:
    """Return the fault of an answer to a task, None if it counts.

    samples is the number of rows the client registered: claiming more would give a client
    more weight. max_norm bounds the Euclidean norm of the whole update. If it is 0, a
    training update is still dropped if it is longer than ENORMOUS times the starting weights'
    norm (or 1): though finite, it would drown the average.
    """
    client = task.client
    if (update.round, update.client, update.base) != (task.round, client, task.base):
        return Fault(client, "mismatch", "another round, client or model than asked")
    if update.samples < 1 or samples not in (None, update.samples):
        return Fault(client, "mismatch", "another number of rows than registered")
    evaluated = task.operation == "evaluate"
    if update.flops < 0 or (update.steps < 1) != evaluated:
        return Fault(client, "mismatch", "no step was taken, or one that was not asked for")
    if (update.correct is not None) != evaluated:
        return Fault(client, "mismatch", "another kind of answer than asked")
    if update.correct is not None and not 0 <= update.correct <= _judged(task, update.samples):
        return Fault(client, "mismatch", "more right answers than rows")
    shapes = {} if evaluated else task.network.tensors()
    if update.delta.keys() != shapes.keys():
        return Fault(client, "shape", "other tensors than were asked for")
    for name, part in update.delta.items():
        if part.dtype != torch.float32 or tuple(part.shape) != shapes[name]:
            return Fault(client, "shape", name)
    if not isfinite(update.loss):
        return Fault(client, "not-finite", "loss")
    most = 0.0
    for name, part in update.delta.items():
        if not isfinite(top := largest(part)):
            return Fault(client, "not-finite", name)
        most = max(most, top)
    bound = max_norm or (ENORMOUS if task.operation == "train" else inf)
    # A vector of d entries is at most √d times as long as its largest: enough for most.
    if sqrt(sum(part.numel() for part in update.delta.values())) * most <= bound:
        return None
    if not max_norm:
        bound *= max(1.0, norm(task.weights))
    if (length := norm(update.delta)) > bound:
        return Fault(client, "norm", f"{length:.3g} is longer than {bound:.3g}")
    return None


def _judged(task: RoundTask, rows: int) -> int:
    """Return the number of answers for `rows` rows: one each, or one for each pixel."""
    masks = task.network.task == "segmentation"
    return rows * prod(task.network.input_shape[1:]) if masks else rows
