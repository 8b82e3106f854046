"""SimpleCNN: two 5 x 5 convolutions and one hidden layer, without normalisation.

HF-KCU gives 188,810 parameters for 28 x 28 x 1 and 10 classes and no architecture. FedAvg's
CNN (McMahan et al. 2017: 32 and 64 channels of 5 x 5, 512 hidden) has exactly that many if
2 x 2 positions reach the hidden layer: 832 + 51,264 + 131,584 + 5,130. That is the network
here; it was derived from the number, not read in the paper.
"""

import torch
from torch import nn

from workers.errors import RefusedError
from workers.training.networks.base import Architecture, image, positive, uniform

KERNEL = 5
PADDED_BELOW = 16  # pixels; two unpadded 5 x 5 kernels leave 2 x 2 of a 16 x 16 image


class SimpleCNN(nn.Module):
    """Logits (n, classes) of images (n, channels, height, width), sides of at least 6.

    The number of parameters does not depend on the sides: the last pooling leaves 2 x 2.
    """

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        positive(channels=channels, classes=classes)
        if min(height, width) < 6:
            raise RefusedError("simple-cnn needs images of at least 6 x 6 pixels")
        super().__init__()
        padding = 0 if min(height, width) >= PADDED_BELOW else KERNEL // 2
        shrink = KERNEL - 1 - 2 * padding
        left = [(side - shrink) // 2 - shrink for side in (height, width)]
        self.features = nn.Sequential(
            nn.Conv2d(channels, 32, KERNEL, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, KERNEL, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(((left[0] + 1) // 2, (left[1] + 1) // 2), ceil_mode=True),
        )
        self.hidden = nn.Linear(64 * 2 * 2, 512)
        self.head = nn.Linear(512, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits (n, classes)."""
        hidden = torch.relu(self.hidden(self.features(inputs).flatten(1)))
        logits: torch.Tensor = self.head(hidden)
        return logits


ARCHITECTURE = Architecture(
    "simple-cnn",
    {"channels": 1, "height": 28, "width": 28, "classes": 10},
    SimpleCNN,
    uniform,
    image,
)
