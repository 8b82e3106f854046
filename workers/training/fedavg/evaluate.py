"""A model's outputs: logits, accuracy, the losses of rows, and the clients' training losses."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import Loss
from workers.training.fedavg.determinism import deterministic
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, with_weights


def loss_of(kind: Loss, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean loss (scalar) of logits (n, c, ...) and targets (n, ...) int64."""
    flat, labels = _rows(logits.float(), targets)
    entropy = functional.cross_entropy(flat, labels)
    if kind == "cross-entropy":
        return entropy
    return entropy + dice_loss(flat, labels)


def row_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy (n,) of each row: for images of pixels, the mean over them."""
    flat, labels = _rows(logits.float(), targets)
    return (
        functional.cross_entropy(flat, labels, reduction="none").view(len(logits), -1).mean(1)
    )


def dice_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return 1 - the mean over classes of 2Σpt / (Σp² + Σt²): Milletari et al. 2016.

    logits (m, c), labels (m,): p is the softmax and t one-hot. Classes that neither occur
    nor are predicted count as matched: one pixel is added above and below.
    """
    predicted = logits.softmax(1)
    wanted = functional.one_hot(labels, logits.shape[1]).to(predicted.dtype)
    both = 2 * (predicted * wanted).sum(0) + 1
    either = predicted.square().sum(0) + wanted.sum(0) + 1
    return 1 - (both / either).mean()


def _rows(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits (m, c) and targets (m,): the 2-d loss has no deterministic CUDA kernel."""
    return logits.movedim(1, -1).reshape(-1, logits.shape[1]), targets.reshape(-1)


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
