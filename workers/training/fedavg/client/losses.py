"""The clients' training losses."""

import torch
from torch.nn import functional

from workers.training.fedavg.config import Loss


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
