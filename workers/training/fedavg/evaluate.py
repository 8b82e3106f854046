"""A model's outputs: logits, losses of rows, accuracy."""

from dataclasses import dataclass

import torch

from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.losses import row_losses
from workers.training.fedavg.determinism import deterministic
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, with_weights

BATCH = 256  # rows; fixed, so that a row's logits are the same in every evaluation


@dataclass(frozen=True, slots=True)
class Evaluation:
    """accuracy is the share of rows (or pixels) whose largest logit is the target.

    loss is the mean cross-entropy. dice is the mean over the classes that occur, the first
    (background) left out, of 2|A∩B| / (|A| + |B|) over all pixels; None for classification.
    """

    samples: int
    loss: float
    accuracy: float
    dice: float | None = None


def logits_of(
    network: Network,
    weights: Weights,
    inputs: torch.Tensor,
    device: torch.device | str = "cpu",
    threads: int | None = None,
) -> torch.Tensor:
    """Return logits (n, ...) float32 on the CPU. Raises RefusedError for foreign weights."""
    module = with_weights(network, weights, device).eval()
    with torch.no_grad(), deterministic(threads):
        parts = [module(part.to(device)).cpu() for part in torch.split(inputs, BATCH)]
    return torch.cat(parts)


def evaluate(
    network: Network,
    weights: Weights,
    data: ClientData,
    device: torch.device | str = "cpu",
    threads: int | None = None,
) -> Evaluation:
    """Return a model's results on rows."""
    logits = logits_of(network, weights, data.inputs, device, threads)
    predicted = logits.argmax(1)
    loss = float(row_losses(logits, data.targets).double().mean())
    accuracy = float((predicted == data.targets).double().mean())
    dice = None
    if network.task == "segmentation":
        dice = _dice(predicted, data.targets, logits.shape[1])
    return Evaluation(len(data), loss, accuracy, dice)


def _dice(predicted: torch.Tensor, targets: torch.Tensor, classes: int) -> float:
    scores = []
    for label in range(1, classes):
        found, wanted = predicted == label, targets == label
        either = int(found.sum()) + int(wanted.sum())
        if either:
            scores.append(2 * int((found & wanted).sum()) / either)
    return sum(scores) / len(scores) if scores else 1.0
