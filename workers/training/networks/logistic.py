"""Multinomial logistic regression: strictly convex with weight decay, the case with proofs."""

import torch
from torch import nn

from workers.training.networks.base import Architecture, positive, uniform


class Logistic(nn.Module):
    """Logits (n, classes) = W x + b of inputs (n, ...) with `features` numbers each."""

    def __init__(self, features: int, classes: int) -> None:
        positive(features=features, classes=classes)
        super().__init__()
        self.head = nn.Linear(features, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits (n, classes)."""
        logits: torch.Tensor = self.head(inputs.flatten(1))
        return logits


ARCHITECTURE = Architecture(
    "logistic",
    {"features": 64, "classes": 10},
    Logistic,
    uniform,
    lambda shape: (shape["features"],),
)
