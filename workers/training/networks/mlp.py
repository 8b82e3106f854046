"""A multilayer perceptron with one hidden layer: a head on given features."""

import torch
from torch import nn

from workers.training.networks.base import Architecture, positive, uniform


class Perceptron(nn.Module):
    """Logits (n, classes) = W₂ ReLU(W₁ x + b₁) + b₂ of inputs (n, ...)."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        positive(features=features, hidden=hidden, classes=classes)
        super().__init__()
        self.hidden = nn.Linear(features, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits (n, classes)."""
        logits: torch.Tensor = self.head(torch.relu(self.hidden(inputs.flatten(1))))
        return logits


ARCHITECTURE = Architecture(
    "mlp",
    {"features": 64, "hidden": 32, "classes": 10},
    Perceptron,
    uniform,
    lambda shape: (shape["features"],),
)
