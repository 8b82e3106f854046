"""Res-UNet for segmentation: a U-Net of residual blocks, 7.6 M parameters as in PUF.

PUF says "a vanilla Res-UNet, approximately 7.6M" for 384 x 384 x 3 and no more. Widths 32 to
512, residual blocks of two 3 x 3 convolutions with a 1 x 1 shortcut, decoder steps of
nearest-neighbour enlargement and a 1 x 1 convolution, skips by concatenation: 7,589,090
parameters for two classes. Normalised in two groups, as resnet18.py.
"""

import torch
from torch import nn
from torch.nn import functional

from workers.training.networks.base import Architecture, divides, image, lecun, positive

GROUPS = 2
LEVELS = 5


class UnetBlock(nn.Module):
    """relu(norm(conv(relu(norm(conv x)))) + shortcut x), 3 x 3, same size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(GROUPS, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (n, outputs, h, w)."""
        hidden = torch.relu(self.first_norm(self.first(inputs)))
        hidden = self.second_norm(self.second(hidden))
        return torch.relu(hidden + self.shortcut(inputs))


class ResUNet(nn.Module):
    """Logits (n, classes, height, width) of images with sides of at least 16."""

    def __init__(
        self, channels: int, height: int, width: int, classes: int, features: int
    ) -> None:
        positive(channels=channels, classes=classes, height=height // 16, width=width // 16)
        divides(GROUPS, features=features)
        super().__init__()
        widths = [features << level for level in range(LEVELS)]
        self.down = nn.ModuleList(
            UnetBlock(inputs, outputs)
            for inputs, outputs in zip([channels, *widths], widths, strict=False)
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))  # (512, 256), ...
        self.narrow = nn.ModuleList(nn.Conv2d(deep, skip, 1) for deep, skip in pairs)
        self.up = nn.ModuleList(UnetBlock(2 * skip, skip) for _, skip in pairs)
        self.pixels = nn.Conv2d(features, classes, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits (n, classes, height, width)."""
        skips, current = [], inputs
        for level, block in enumerate(self.down):
            current = block(functional.max_pool2d(current, 2) if level else current)
            skips.append(current)
        for narrow, block, skip in zip(self.narrow, self.up, skips[-2::-1], strict=True):
            # The size of the skip: pooling rounded an odd side down.
            larger = functional.interpolate(current, list(skip.shape[2:]), mode="nearest")
            current = block(torch.cat([narrow(larger), skip], 1))
        logits: torch.Tensor = self.pixels(current)
        return logits


ARCHITECTURE = Architecture(
    "res-unet",
    {"channels": 3, "height": 384, "width": 384, "classes": 2, "features": 32},
    ResUNet,
    lecun,
    image,
    lambda _: "segmentation",
)
