"""ResNet-18 (He et al. 2016) with group normalisation in two groups, as in PUF, section V-A.

Batch normalisation keeps running statistics of the clients' data, which averaging neither
preserves nor removes; group normalisation keeps nothing.

`stem` 7 is the paper's for 224 x 224: 7 x 7 with stride 2. `stem` 3 is the usual one for
32 x 32. `pool` 1 adds the 3 x 3 maximum with stride 2. Stem 3 with the pooling costs
0.14 G multiply-adds for a 32 x 32 image, which fits PUF's Table VII (0.15 G); without the
pooling it is 0.56 G.
"""

import torch
from torch import nn

from workers.errors import RefusedError
from workers.training.networks.base import Architecture, he, image, positive

GROUPS = 2
WIDTHS = (64, 128, 256, 512)


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut, a 1 x 1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(GROUPS, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.GroupNorm(GROUPS, outputs),
            )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (n, outputs, ceil(h / stride), ceil(w / stride))."""
        hidden = torch.relu(self.first_norm(self.first(inputs)))
        hidden = self.second_norm(self.second(hidden))
        return torch.relu(hidden + self.shortcut(inputs))


class ResNet18(nn.Module):
    """Logits (n, classes) of images (n, channels, height, width) of any size."""

    def __init__(
        self, channels: int, height: int, width: int, classes: int, stem: int, pool: int
    ) -> None:
        positive(channels=channels, height=height, width=width, classes=classes)
        if stem not in (3, 7) or pool not in (0, 1):
            raise RefusedError("resnet18: stem must be 3 or 7, pool 0 or 1")
        super().__init__()
        stride = 2 if stem == 7 else 1
        self.stem = nn.Conv2d(channels, WIDTHS[0], stem, stride, stem // 2, bias=False)
        self.stem_norm = nn.GroupNorm(GROUPS, WIDTHS[0])
        self.pool = nn.MaxPool2d(3, 2, padding=1) if pool else nn.Identity()
        blocks, inputs = [], WIDTHS[0]
        for stage, outputs in enumerate(WIDTHS):
            blocks.append(ResidualBlock(inputs, outputs, 1 if stage == 0 else 2))
            blocks.append(ResidualBlock(outputs, outputs, 1))
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits (n, classes)."""
        hidden = self.pool(torch.relu(self.stem_norm(self.stem(inputs))))
        # A mean, not AdaptiveAvgPool2d: that has no deterministic gradient on CUDA.
        logits: torch.Tensor = self.head(self.blocks(hidden).mean((2, 3)))
        return logits


ARCHITECTURE = Architecture(
    "resnet18",
    {"channels": 3, "height": 32, "width": 32, "classes": 10, "stem": 3, "pool": 1},
    ResNet18,
    he,
    image,
)
